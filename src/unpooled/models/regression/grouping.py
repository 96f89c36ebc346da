"""Which column has values that mark rows as belonging together: two SUMs, and one more if there is such a column.

The first SUM fits a smooth function of all columns, the second adds up its residuals by column and hash of the value. Where equal
values explain them and near ones do not, a SUM of counts says which values occur often enough to have an offset of their own.
A hash hides a value from nobody who can guess it: the server learns which of the values it can think of occur, and how often.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.federation import Federation
from unpooled.maths import bayes_linear
from unpooled.maths.feature_maps import features, start
from unpooled.models.regression.group_effects import HASHES, HOODS, Groups, gain, hashed, table
from unpooled.models.regression.last_layer import Design, Fitted, statistics
from unpooled.models.regression.scaling import Scaling, raw_rows, standard_rows
from unpooled.parameters import at_least
from unpooled.tree import message

CELLS = 2**18  # of all columns together in the look for a column: two numbers each
SMOOTH = {"map": "ard", "m": 100, "spectrum": "rbf", "frequencies": "fixed"}  # whose residuals are looked at
FARTHEST = 3.0  # standard deviations that a residual counts for: no single row makes a group
CLEARLY = 50.0  # so much must offsets add to the log evidence: a smooth function not yet learned leaves some of its own
FEWEST = 3  # rows of a value that has an offset: sums over fewer are nearly rows
MOST = 4096  # values with an offset: what is sent grows with them


@message("regression.Look")
class Look(NamedTuple):
    """Rows and sums of standardised residuals, by column, neighbourhood and hash of the value."""

    count: Float[Array, "d c", ">=0 rows"]
    away: Float[Array, "d c o"]


@message("regression.Count")
class Count(NamedTuple):
    rows: Float[Array, "h", ">=0 rows"]


@client("regression.look", SUM, adds=True, batched=False)
def look(fitted: Fitted, client: Client, *, spec: dict, share: float, seed: int, size: int) -> Look:
    x, y, w, _ = standard_rows(fitted.design.scaling, client, share, seed)
    raw = raw_rows(client)
    mean, variance = bayes_linear.predict(fitted.posterior, features(spec, fitted.design.kernel, x))
    away = np.clip((y - mean) / np.sqrt(variance), -FARTHEST, FARTHEST)
    both = np.column_stack([w, w[:, None] * away])  # (n, 1 + o)
    sums = np.stack([table(raw[:, j], x[:, j], both, size) for j in range(x.shape[1])])  # (d, cells, 1 + o)
    return Look(sums[..., 0], sums[..., 1:])


@client("regression.count", SUM, adds=True, batched=False)
def count(column: Groups, client: Client) -> Count:
    """How many rows have each value of a column."""
    values = raw_rows(client)[:, int(column.column)]
    there = (to_numpy(client.w) > 0) & ~np.isnan(values)
    return Count(np.bincount(hashed(values[there], HASHES), minlength=HASHES).astype(np.float64))


def check_group_by(wanted: Any) -> None:
    """Refuse what is neither None, "auto" nor the index of a column."""
    if not (wanted is None or (isinstance(wanted, str) and wanted == "auto")):
        at_least("group_by", wanted, 0)


def find(fed: Federation, scaling: Scaling, wanted: Any, share: float, seed: int) -> tuple[Groups | None, int]:
    """The groups that rows fall into by the column `wanted`, or by the best if that is "auto", and the SUMs it took.

    The scaling must be of mean and standard deviation where the column is to be found.
    """
    d = len(scaling.x_mean)
    if wanted is None:
        return None, 0
    if wanted != "auto" and wanted >= d:
        raise BadParameter(f"group_by={wanted} is not a column: rows have {d}, the first is 0")
    column, spent = (_best_column(fed, scaling, share, seed), 2) if wanted == "auto" else (wanted, 0)
    if column is None:
        return None, spent
    asked = Groups(np.asarray(float(column)), np.zeros(0))
    rows = to_numpy(fed.sum(count, asked).rows)
    often = np.flatnonzero(rows >= FEWEST)
    often = np.sort(often[np.argsort(-rows[often], kind="stable")[:MOST]])
    return (asked._replace(keys=often.astype(np.float64)) if len(often) else None), spent + 1


def _best_column(fed: Federation, scaling: Scaling, share: float, seed: int) -> int | None:
    """The column whose equal values explain most of what a smooth function of all columns leaves; none unless clearly."""
    d = len(scaling.x_mean)
    design = Design(scaling, start(SMOOTH, d, np.random.default_rng(seed)))
    asks = {"spec": SMOOTH, "share": share, "seed": seed}
    post = bayes_linear.posterior(fed.sum(statistics.using(**asks), design))
    size = max(CELLS // (HOODS * d), 1)
    seen = fed.sum(look.using(**asks, size=size), Fitted(design, post))
    gains = [gain(n, away) for n, away in zip(to_numpy(seen.count), to_numpy(seen.away))]
    best = int(np.argmax(gains))
    return best if gains[best] > CLEARLY else None
