"""Which mixtures a fit starts from: rounds of EM over all rows from many, side by side; the likeliest go on. One SUM per round.

These are rounds of EM that the fit itself is spared. Rows of wide tables stay for ever in the component that they are in, unless
covariances of components with few rows are drawn towards the mean covariance: mixtures that come from clusters begin so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_mixture, cell_search
from unpooled.models.initialization.cell_sums import rounded
from unpooled.models.initialization.gathered import Frame
from unpooled.models.initialization.recombination import recombined, shape_of_union, union
from unpooled.models.initialization.together import Question, Search

AHEAD = 5  # rounds: mixtures are compared by where as many more with the last gain would lead
SAME = 0.05  # mean squared distance of means, in standard deviations: nearer mixtures are one
RIDGE = 1e-5  # the least eigenvalue of a standardised covariance in these rounds


class Run(NamedTuple):
    """A mixture after a few rounds of EM."""

    params: Params
    loglik: float  # per row
    starved: bool  # whether a component has very few rows
    centred: bool  # whether it began as clusters of k-means
    gain: float = 0.0  # per row, of the last round


class Stage(NamedTuple):
    """Some rounds of EM, after which only the likeliest go on."""

    rounds: int
    shrink: float  # rows with the mean covariance, per column, that are added to a mixture from clusters
    more: int  # that go on, beyond those asked for


STAGES = Stage(4, 5.0, 3), Stage(4, 2.0, 2), Stage(4, 0.0, 0)


def short_runs(
    fits: list[Params], centred: list[Params], n_init: int, frame: Frame, shape: str, rng: np.random.Generator
) -> Search:
    """Rounds of EM from each mixture; after each of STAGES only the likeliest go on. Returns the best `n_init`.

    Mixtures from k-means (`centred`) begin with shrunk covariances: see `_m_step`.
    """
    runs = [Run(p, -np.inf, False, False) for p in fits] + [Run(p, -np.inf, False, True) for p in centred]
    k = len(runs[0].params.weights)
    for number, stage in enumerate(STAGES):
        for turn in range(stage.rounds):
            mixed = [union([run.params for run in runs], shape)] if number and not turn and k > 1 else []
            asked = [run.params for run in runs] + mixed
            totals = yield Question(tuple(asked), [shape] * len(runs) + [shape_of_union(shape)] * len(mixed))
            totals = [tree.map(to_numpy, up) for up in totals]
            runs = [_after(run, up, frame, shape, stage) for run, up in zip(runs, totals)]
            if mixed:
                runs += [Run(p, -np.inf, False, False) for p in recombined(mixed[0], totals[-1], k, frame, shape, rng)]
        runs = _kept(runs, n_init + stage.more, shape)
    return [run.params for run in runs]


def _kept(runs: list[Run], n: int, shape: str) -> list[Run]:
    """The n likeliest, of either kind about as many: likelihoods of shrunk ones are lower, and a few rounds do not tell the end."""
    from_cells = _likeliest([run for run in runs if not run.centred], n, shape)
    from_centres = _likeliest([run for run in runs if run.centred], n, shape)
    least = n // 2
    first = from_cells[:least] + from_centres[:least]
    rest = _likeliest(from_cells[least:] + from_centres[least:], n, shape)
    return sorted((first + rest)[:n] if least else _likeliest(runs, n, shape), key=_rank)


def _after(run: Run, up: Stats, frame: Frame, shape: str, stage: Stage) -> Run:
    few = cell_search.least_rows(len(frame.mean), shape)
    loglik = float(rounded(up.loglik / up.rows))
    params = _m_step(run.params, up, frame, shape, stage.shrink if run.centred else 0.0)
    gain = loglik - run.loglik if np.isfinite(run.loglik) else 0.0
    return Run(params, loglik, bool(up.n.min() < few), run.centred, max(gain, 0.0))


def _likeliest(runs: list[Run], n: int, shape: str) -> list[Run]:
    """The n likeliest, without those that stand where a likelier one does."""
    kept: list[Run] = []
    for run in sorted(runs, key=_rank):
        if not any(_same(run, other, shape) for other in kept):
            kept.append(run)
    return kept[:n]


def _same(one: Run, other: Run, shape: str) -> bool:
    """Whether each mean of one lies near a mean of the other, in units of that component's spread."""
    spreads = gaussian.full_covs(other.params, shape).diagonal(axis1=1, axis2=2)
    away = (one.params.means[:, None] - other.params.means) ** 2 / spreads
    return bool(away.mean(-1).min(1).max() < SAME)


def _m_step(params: Params, up: Stats, frame: Frame, shape: str, shrink: float) -> Params:
    """The next mixture; in the standardised frame no eigenvalue is below RIDGE, so that no component collapses here.

    Covariances of components with few rows are drawn towards the mean covariance: without that, rows of wide tables stay for ever
    in the component that they are in.
    """
    found = mixture.m_step(params, up, shape, 0.0)
    unit = {"diag": frame.scale**2, "spherical": np.mean(frame.scale**2)}.get(shape, np.outer(frame.scale, frame.scale))
    standard = gaussian.unpack_covs(found.covs, shape) / unit
    if shape in ("full", "diag") and shrink > 0:
        standard = _shrunk(standard, up.n, shrink * (standard.shape[-1] + 1 if shape == "full" else 2))
    covs = cell_mixture.kind_of(shape).positive(standard, RIDGE) * unit
    return found._replace(covs=gaussian.pack_covs(covs, shape))


def _shrunk(covs: np.ndarray, n: np.ndarray, rows: float) -> np.ndarray:
    """The covariances as if each component had `rows` more rows with the mean covariance."""
    share = (rows / (n + rows)).reshape((-1,) + (1,) * (covs.ndim - 1))
    return (1 - share) * covs + share * np.tensordot(n / n.sum(), covs, 1)


def _rank(run: Run) -> tuple[bool, float]:
    """Starved ones last; then by the likelihood that a few rounds more would lead to."""
    return run.starved, -(run.loglik + AHEAD * run.gain)
