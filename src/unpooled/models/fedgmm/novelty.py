"""Novelty thresholds of a fitted FedGMM: quantiles of log densities, read from histograms. SUMs at the end of a run.

Rows that the Gaussians were fitted to have leave-one-out densities, the others theirs; all of them are counted, unless those held out
contradict the former.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, TELL, Client, client
from unpooled.federation import Federation
from unpooled.learners.mixing import log_shares, responsibilities
from unpooled.learners.rows import held_out
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm.embedding import Embedding, embed
from unpooled.models.fedgmm.leave_one_out import log_density_without
from unpooled.models.fedgmm.weighted_e_step import log_densities
from unpooled.tree import message

MIN_HELD_OUT = 20  # held-out rows of all clients, below which leave-one-out densities are used
BINS = 4000  # of the histogram of log densities
RATES = np.array([0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2])  # false-alarm rates with a stored threshold
TESTED_RATES = (0.05, 0.2)  # at which held-out rows may contradict leave-one-out densities
TOLERATED = 2.0  # standard deviations


@message("fedgmm.Density")
class Density(NamedTuple):
    """The density of the inputs over all clients, and the range of the histogram."""

    gaussians: Params
    shares: Float[Array, "k"]
    rows: Float[Array, ""]  # training rows of all clients
    embedding: Embedding
    range: Float[Array, "2"]  # smallest and largest log density


@message("fedgmm.DensityMoments")
class DensityMoments(NamedTuple):
    """Sums of log densities, for the range of their histogram."""

    n: Float[Array, "", ">=0 rows"]
    total: Float[Array, ""]
    squares: Float[Array, "", ">=0"]


@message("fedgmm.DensityCounts")
class DensityCounts(NamedTuple):
    """Rows by log density."""

    n: Float[Array, "bins", ">=0 rows"]


@message("fedgmm.Shift")
class Shift(NamedTuple):
    """How far clients move their own thresholds."""

    levels: Float[Array, "rates"]  # novelty thresholds of held-out rows minus those of leave-one-out densities


def bin_edges(range: Array) -> np.ndarray:
    """(BINS + 1,) equally spaced log densities."""
    return np.linspace(float(range[0]), float(range[1]), BINS + 1)


def _log_density(down: Density, client: Client, shape: str, key: str = "") -> np.ndarray:
    """Leave-one-out log P(x) of a client's rows, (n,): under the shares of all clients, or with a key its own weights."""
    z = embed(to_numpy(client.x), down.embedding).astype(np.float64)
    w = to_numpy(client.w)
    weights = to_numpy(client.state[key]).sum(-1) if key else down.shares
    rows = float(w.sum()) if key else float(down.rows)
    counts = down.shares * float(down.rows)
    return log_density_without(down.gaussians, z, w, weights, shape, counts, rows)


def _held_out_log_density(down: Density, client: Client, shape: str) -> np.ndarray:
    """log P(x) of a client's rows under the shares of all clients, as of rows that the Gaussians have not seen."""
    z = embed(to_numpy(client.x), down.embedding).astype(np.float64)
    log_n = log_densities(down.gaussians, z, shape)
    return responsibilities(log_n + log_shares(down.shares, log_n))[1]


@client("fedgmm.density_moments", SUM, batched=False)
def density_moments(down: Density, client: Client, *, shape: str, kept_out: bool = False) -> DensityMoments:
    """Sum and sum of squares of the rows' log densities; with `kept_out` some rows were not seen by the Gaussians."""
    s = _log_density(down, client, shape)
    w = to_numpy(client.w)
    if kept_out:
        s = np.where(held_out(client), _held_out_log_density(down, client, shape), s)
    return DensityMoments(w.sum(), (w * s).sum(), (w * s**2).sum())


@client("fedgmm.density_counts", SUM, batched=False)
def density_counts(down: Density, client: Client, *, shape: str, key: str, kept_out: bool = False) -> DensityCounts:
    """A histogram of the rows' log densities; the client keeps the thresholds of its own density in its state."""
    s = _log_density(down, client, shape)
    w = to_numpy(client.w)
    if kept_out:
        w = w * ~held_out(client)
    if key in client.state:
        client.state["novelty"] = -np.quantile(_log_density(down, client, shape, key)[w > 0], RATES)
    return _histogram(s, w, down.range)


@client("fedgmm.held_out_counts", SUM, batched=False)
def held_out_counts(down: Density, client: Client, *, shape: str) -> DensityCounts:
    """A histogram of the log densities of the rows that the Gaussians have not seen."""
    w = to_numpy(client.w) * held_out(client)
    return _histogram(_held_out_log_density(down, client, shape), w, down.range)


@client("fedgmm.shift_thresholds", TELL, batched=False)
def shift_thresholds(down: Shift, client: Client) -> None:
    """Correct the client's own thresholds by what held-out rows of all clients have shown of leave-one-out densities."""
    if "novelty" in client.state:
        client.state["novelty"] = to_numpy(client.state["novelty"]) + to_numpy(down.levels)


def _histogram(s: np.ndarray, w: np.ndarray, range: Array) -> DensityCounts:
    """Rows by log density, those beyond the range in its outer bins."""
    return DensityCounts(np.histogram(s.clip(*range), bins=bin_edges(range), weights=w)[0].astype(np.float64))


# ---- the server ----


def thresholds(fed: Federation, down: Density, shape: str, key: str, kept_out: bool) -> np.ndarray:  # (rates,)
    """Novelty scores that a share RATES of new rows exceeds.

    Two SUMs, and with `kept_out` a third and, if the held-out rows contradict the leave-one-out densities, one TELL.
    """
    options = {"shape": shape, "kept_out": kept_out}
    down = down._replace(range=_range(fed.sum(density_moments.using(**options), down)))
    seen = to_numpy(fed.sum(density_counts.using(**options, key=key), down).n)
    if not kept_out:
        return _levels(seen, down.range)
    new = to_numpy(fed.sum(held_out_counts.using(shape=shape), down).n)
    left_out = _levels(seen, down.range)
    if new.sum() < MIN_HELD_OUT or agree(left_out, new, down.range):
        return _levels(seen + new, down.range)
    levels = _levels(new, down.range)
    fed.tell(shift_thresholds, Shift(levels - left_out))
    return levels


def agree(levels: np.ndarray, counts: np.ndarray, range: Array) -> bool:
    """Whether about a share TESTED_RATES of the counted rows exceeds the levels of these rates."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    n = below[-1]
    tested = np.isin(RATES, TESTED_RATES)
    alarms = np.interp(-levels[tested], bin_edges(range), below)
    expected = RATES[tested] * n
    return bool((np.abs(alarms - expected) <= TOLERATED * np.sqrt(expected * (1 - RATES[tested])) + 0.5).all())


def _range(moments: DensityMoments) -> np.ndarray:
    """(2,) the range of a histogram of log densities."""
    mean = float(moments.total / moments.n)
    sd = np.sqrt(max(float(moments.squares / moments.n) - mean**2, 1e-12))
    return np.array([mean - 12 * sd, mean + 6 * sd])


def _levels(n: np.ndarray, range: Array) -> np.ndarray:
    """Novelty scores that a share RATES of the rows counted in n (bins,) exceeds."""
    below = np.concatenate([[0.0], np.cumsum(n)])
    distinct = np.concatenate([[True], np.diff(below) > 0])
    wanted = RATES * (below[-1] + 1) - 0.5  # the quantile of the next row, not of those counted
    return -np.interp(wanted, below[distinct], bin_edges(range)[distinct])
