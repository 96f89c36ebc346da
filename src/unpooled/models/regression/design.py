"""How rows become features, and the sums of a fit: one SUM of second moments, k (k + 1) / 2 numbers for k features, k more per group."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import doubles, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.federation import Federation
from unpooled.maths import bayes_linear
from unpooled.maths.bayes_linear import Posterior, Stats
from unpooled.maths.feature_maps import Kernel, features
from unpooled.models.regression.group_effects import Groups, members
from unpooled.models.regression.scaling import Scaling, raw_rows, standard_rows
from unpooled.tree import message

ROUNDING = (
    2e-6  # of a Gram matrix in single precision, relative to its diagonal: above its error for up to 300 features
)


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


@client("regression.statistics", SUM, adds=True)
def statistics(design: Design, client: Client, *, spec: dict, share: float, seed: int, single: bool = False) -> Stats:
    """Second moments of the features and targets of the rows that are fitted: all but a fraction `share`, chosen by `seed`.

    With `single`, the Gram matrix is sent in single precision, which halves what is sent.
    """
    x, y, w, _ = standard_rows(design.scaling, client, share, seed)
    groups = 0 if design.groups is None else len(design.groups.keys)
    stats = bayes_linear.statistics(features(spec, design.kernel, x), y, w, group_of(design, client), groups)
    return stats._replace(zz=to_numpy(stats.zz).astype(np.float32)) if single else stats


def sum_statistics(fed: Federation, design: Design, *, single: bool = False, **asked: Any) -> Stats:
    """The SUM of `statistics`, as the server goes on with it: definite in spite of rounding, if it was sent in single precision."""
    stats = tree.map(doubles, fed.sum(statistics.using(single=single, **asked), design))
    return bayes_linear.lifted(stats, ROUNDING) if single else stats


def group_of(design: Design, client: Client) -> np.ndarray | None:  # (..., n)
    """The group of each of the client's rows, -1 for none."""
    return members(design.groups, raw_rows(client))
