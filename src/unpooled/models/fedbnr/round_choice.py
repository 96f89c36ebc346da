"""Which round of FedBNR is kept: the one with the smallest absolute error on rows not fitted. Sends nothing.

These are rows held out at the clients, whose errors are part of a SUM, or the server's own rows, if it has some.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.errors import BadData
from unpooled.maths.bayes_linear import Stats
from unpooled.maths.feature_maps import Leaves
from unpooled.models.fedbnr.checks import check_server_data
from unpooled.models.fedbnr.kernel_learning import Checked
from unpooled.models.regression import Design, members, standard
from unpooled.tree import message

SERVER_SHARE = 0.8  # fraction of the server's rows to distil on; the others choose the round


@message("fedbnr.Best")
class Best(NamedTuple):
    """The round at which held-out rows were predicted best."""

    theta: Leaves
    stats: Stats
    log_noise: float
    log_prior: float
    score: float  # mean absolute error of standardised targets, less sensitive to outliers than squares
    round: int


@message("fedbnr.ServerRows")
class ServerRows(NamedTuple):
    """The server's rows, standardised as the clients' are."""

    x: np.ndarray  # (s, d)
    y: np.ndarray  # (s, o)
    group: np.ndarray | None  # (s,)


def server_rows(design: Design, data: Any, distil: float) -> tuple[ServerRows, ServerRows]:
    """(the first `distil` of the server's rows, to distil on; the others, to choose the round); both empty without data."""
    scaling = design.scaling
    d = len(scaling.x_mean)
    o = len(scaling.y_mean)
    if data is None:
        none = ServerRows(np.zeros((0, d)), np.zeros((0, o)), None)
        return none, none
    x, y = check_server_data(data)
    y = y[:, None] if y.ndim == 1 else y
    for found, wanted, what in ((x.shape[1], d, "columns"), (y.shape[1], o, "targets")):
        if found != wanted:
            raise BadData(f"server_data has {found} {what} but the clients have {wanted}: give the same")
    cut = int(distil * len(x))
    group = members(design.groups, x)
    x = standard(scaling, x)
    y = (y - scaling.y_mean) / scaling.y_scale

    def some(rows: slice) -> ServerRows:
        """Some of the server's rows."""
        return ServerRows(x[rows], y[rows], None if group is None else group[rows])

    return some(slice(cut)), some(slice(cut, None))


def judge(best: Best | None, now: Best, held: Checked, y_scale: np.ndarray) -> tuple[Best, dict[str, float]]:
    """(the better of two rounds, errors of this one in units of y); without held-out rows the last round is the better."""
    if held.n == 0:
        return now, {}
    now = now._replace(score=float(held.absolute.mean() / held.n))
    seen = {
        "val_rmse": float(np.sqrt((y_scale**2 * held.squares / held.n).mean())),
        "val_spread": float(np.sqrt((y_scale**2 * held.spread / held.n).mean())),
        "val_mae": float((y_scale * held.absolute / held.n).mean()),
        "val_nlpd": float((held.nlpd / held.n + np.log(y_scale)).mean()),
    }
    return (now if best is None or now.score < best.score else best), seen
