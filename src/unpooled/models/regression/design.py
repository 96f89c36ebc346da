"""How rows become features, and the sums of a fit: one SUM of second moments, k (k + 1) / 2 numbers for k features, k more per group.

Where features are rounded to a grid (`unpooled.maths.grids`), their second moments are sums of whole numbers, sent in four bytes each. The
grid follows from one SUM of squares (`regression.squares`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, doubles
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import bayes_linear, grids
from unpooled.maths.bayes_linear import Posterior, Stats
from unpooled.maths.feature_maps import Kernel, feature_steps, features
from unpooled.models.regression.group_effects import Groups, members
from unpooled.models.regression.scaling import Scaling, raw_rows, standard_rows
from unpooled.tree import message


@message("regression.Design")
class Design(NamedTuple):
    """How a client's rows become features."""

    scaling: Scaling
    kernel: Kernel
    groups: Groups | None = None  # values whose rows share an offset


@message("regression.Fitted")
class Fitted(NamedTuple):
    """A fitted model, as clients need it to judge their rows."""

    design: Design
    posterior: Posterior


@message("regression.Squares")
class Squares(NamedTuple):
    """Up: sums of squares of the features."""

    rows: Float[Array, "", ">=0 rows"]
    squares: Float[Array, "k", ">=0"]


@client("regression.squares", SUM, adds=True)
def squares(design: Design, client: Client, *, spec: dict, share: float, seed: int) -> Squares:
    """Sums of squares of the features of the rows that are fitted: the diagonal of the second moments that are asked for next."""
    x, _, w, _ = standard_rows(design.scaling, client, share, seed)
    z = features(spec, design.kernel, x)
    return Squares(w.sum(-1), (w[..., None] * z**2).sum(-2))


@client("regression.statistics", SUM, adds=True)
def statistics(design: Design, client: Client, *, spec: dict, share: float, seed: int, packed: bool = False) -> Stats:
    """Second moments of the features and targets of the rows that are fitted: all but a fraction `share`, chosen by `seed`.

    Features on a grid are counted in its steps. With `packed`, the second moments of the features are then sent in four bytes each.
    """
    x, y, w, _ = standard_rows(design.scaling, client, share, seed)
    groups = 0 if design.groups is None else len(design.groups.keys)
    z = features(spec, design.kernel, x)
    group = group_of(design, client)
    steps = feature_steps(design.kernel)
    if steps is None:
        return bayes_linear.statistics(z, y, w, group, groups)
    stats = bayes_linear.statistics(z / steps, grids.snapped(y, grids.TARGETS), w, group, groups, whole=True)
    return stats._replace(zz=grids.in_four_bytes(stats.zz)) if packed else stats


def sum_statistics(fed: Federation, design: Design, **asked: Any) -> Stats:
    """The SUM of `statistics`, of the features themselves where they were counted in steps."""
    stats = tree.map(doubles, fed.sum(statistics.using(**asked), design))
    steps = feature_steps(design.kernel)
    return stats if steps is None else bayes_linear.scaled(stats, steps)


def put_on_grid(fed: Federation, design: Design, **asked: Any) -> tuple[Design, float]:
    """(the design with features rounded so that every second moment of these rows fits into four bytes, their number): one SUM."""
    seen = tree.map(doubles, fed.sum(squares.using(**asked), design))
    omega = design.kernel.omega | {"steps": grids.steps_for(seen.squares)}
    return design._replace(kernel=design.kernel._replace(omega=omega)), float(seen.rows)


def group_of(design: Design, client: Client) -> np.ndarray | None:  # (..., n)
    """The group of each of the client's rows, -1 for none."""
    return members(design.groups, raw_rows(client))
