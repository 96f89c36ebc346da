"""Which mixtures a fit starts from: a few rounds of EM over all rows from many mixtures at once; the likeliest go on. One SUM per round.

These rounds are not lost: the fit goes on from where they end. In wide tables rows never leave the component that they are in, unless
covariances of components with few rows are drawn towards the mean covariance: mixtures that come from clusters begin so.

A mixture of which a component has few rows does not go on, where there are others. In a study it never goes on with that component: a
component that lies beside one person would show this person's row in every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import cell_search
from unpooled.models.initialization.cell_mixture import Cells, Fit
from unpooled.models.initialization.cell_sums import cell_covs
from unpooled.models.initialization.column_frame import Frame, round_to_grid
from unpooled.models.initialization.covariance_kinds import kind_of
from unpooled.models.initialization.together import LEAST_ROWS, Question, Search, held_enough, without

SLOWEST = 0.7  # gains of a round over those of the last one, at most, when it is guessed where rounds lead
EXPECTED = 4  # times the least rows, of a component by its weight: with more it is asked about
CROWDED = 10  # times the least rows: in a study a component of fewer is counted before the next round
SAFE = 2  # times the least rows, of a component that goes on to the next round
SAME = 0.05  # mean squared distance of means, in standard deviations: nearer mixtures are one
RIDGE = 1e-5  # the least eigenvalue of a standardised covariance in these rounds
NEW = 2  # mixtures made of the components of others, in each stage
EQUAL = 1e-6  # of the range of each number over components: those that are nearer are one


class Pool(NamedTuple):
    """Mixtures to choose from, by what they were found in; a few rounds do not tell which kind ends higher."""

    drawn: list[Params]  # fitted to cells around points or across directions
    dense: list[Params]  # fitted to clusters
    plain: list[Params]  # k-means, columns independent


class Run(NamedTuple):
    """A mixture after a few rounds of EM."""

    params: Params
    kind: int  # its place in the pool
    loglik: float = -np.inf  # per row
    least: float = np.inf  # rows of its smallest component
    starved: bool = False  # whether that is too few for a covariance
    gain: float = 0.0  # per row, of the last round
    before: float = 0.0  # the gain of the round before


class Floor(NamedTuple):
    """The fewest rows of a component, and whether a mixture goes on without components of fewer, as in a study."""

    rows: float = LEAST_ROWS
    kept: bool = False  # the promise of a study


class Stage(NamedTuple):
    """Some rounds of EM, after which only the likeliest go on."""

    rounds: int
    shrink: float  # rows with the mean covariance, per column, that are added to a mixture from clusters
    more: int  # that go on, beyond those asked for


DRAWN, DENSE, PLAIN = range(3)
STAGES = Stage(4, 5.0, 3), Stage(4, 2.0, 3), Stage(4, 0.0, 2), Stage(4, 0.0, 0)
QUICK = (Stage(1, 0.0, 0),)  # for fits of fewer rounds than STAGES have
ROUNDS = sum(stage.rounds for stage in STAGES)


def short_runs(
    pool: Pool,
    n_init: int,
    frame: Frame,
    shape: str,
    rng: np.random.Generator,
    stages: Sequence[Stage] = STAGES,
    least: float = 0.0,
) -> Search:
    """Rounds of EM from each mixture; after each of the stages only the likeliest go on. Returns the best `n_init`.

    Mixtures from clusters (`dense`) begin with shrunk covariances: see `_m_step`. When a stage is over, the components of those that
    go on are recombined: the union of all is asked about once, and reduced to as many components as are wanted. A stage begins with a
    SUM of counts: a mixture with a component of few rows is not asked about, unless all have one; in a study, whose `least` is above 0,
    it then goes on without such components, and rounds in which a component may hold few rows begin with such a SUM too.
    """
    floor = Floor(max(LEAST_ROWS, least), least > 0)
    runs = [Run(params, kind) for kind, some in enumerate(pool) for params in some]
    k = len(runs[0].params.weights)
    for number, stage in enumerate(stages):
        runs, unions = yield from _counted(runs, frame, shape, floor, recombine=number > 0 and k > 1)
        runs = yield from _first_round(runs, unions, frame, shape, stage, floor, rng)
        for _ in range(stage.rounds - 1):
            if floor.kept and _in_doubt(runs, frame, floor):
                runs, _ = yield from _counted(runs, frame, shape, floor, recombine=False)
            totals = yield Question(tuple(run.params for run in runs), [shape] * len(runs))
            runs = _after_round(runs, totals, frame, shape, stage, floor)
        runs = _kept(runs, n_init + stage.more, shape, apart=stage.more > 0)
    return [run.params for run in runs]


def _first_round(
    runs: list[Run],
    unions: list[Params],
    frame: Frame,
    shape: str,
    stage: Stage,
    floor: Floor,
    rng: np.random.Generator,
) -> Search:
    """The runs after the first round of a stage, in which the union of all their components is asked about as well."""
    asked = [run.params for run in runs] + unions
    totals = yield Question(tuple(asked), [shape] * len(runs) + [shape_of_union(shape)] * len(unions))
    moved = _after_round(runs, totals, frame, shape, stage, floor)
    if not unions:
        return moved
    k = len(runs[0].params.weights)
    new = recombined(unions[0], tree.map(to_numpy, totals[-1]), k, frame, shape, rng)
    return moved + [Run(p, DRAWN) for p in new if p.weights.min() * float(frame.rows) >= SAFE * floor.rows]


def _after_round(
    runs: list[Run], totals: Sequence[Stats], frame: Frame, shape: str, stage: Stage, floor: Floor
) -> list[Run]:
    """The runs after one round of EM, without those of which a component has few rows."""
    moved = [_after(run, tree.map(to_numpy, up), frame, shape, stage) for run, up in zip(runs, totals)]
    return _fed(moved, frame, shape, floor)


def _counted(runs: list[Run], frame: Frame, shape: str, floor: Floor, recombine: bool) -> Search:
    """(the runs of which no component holds few rows, the union of their components as a list of one): one SUM of counts.

    The union is left out unless `recombine`; its components of few rows are, too. A component of a run that is expected to hold many rows
    may be the likeliest one for no row, where it lies below another: the mixture is asked about.
    """
    asked = [run.params for run in runs]
    shapes = [shape] * len(runs)
    if recombine:
        asked.append(union([run.params for run in runs], shape))
        shapes.append(shape_of_union(shape))
    held = yield from held_enough(asked, shapes)
    enough = [kept | (run.params.weights * float(frame.rows) >= EXPECTED * floor.rows) for run, kept in zip(runs, held)]
    lost = [int((~kept).sum()) for kept in enough]
    sound = [run for run, n in zip(runs, lost) if n == 0]
    if not sound:
        fewest = lost.index(min(lost))
        sound = [_without(runs[fewest], enough[fewest], shape) if floor.kept else runs[fewest]]
    reduced = [without(asked[-1], held[-1], shapes[-1])] if recombine else []
    return sound, reduced


def _fed(runs: list[Run], frame: Frame, shape: str, floor: Floor) -> list[Run]:
    """Those of which no component has few rows: in the next round it might have fewer than may leave. At least one goes on."""
    found = [run for run in runs if run.least >= SAFE * floor.rows]
    if found:
        return found
    largest = max(runs, key=lambda run: run.least)
    enough = largest.params.weights * float(frame.rows) >= SAFE * floor.rows
    return [_without(largest, enough, shape) if floor.kept else largest]


def _in_doubt(runs: list[Run], frame: Frame, floor: Floor) -> bool:
    """Whether a component may hold few rows in the next round."""
    return any(run.params.weights.min() * float(frame.rows) < CROWDED * floor.rows for run in runs)


def _without(run: Run, enough: np.ndarray, shape: str) -> Run:
    """The run without components of few rows; with the heaviest one, if all are."""
    weights = run.params.weights
    return run._replace(params=without(run.params, enough if enough.any() else weights == weights.max(), shape))


def _kept(runs: list[Run], n: int, shape: str, apart: bool) -> list[Run]:
    """The n likeliest; `apart` keeps some of each kind where n allows it, since a few rounds do not tell the end."""
    kinds = (DRAWN, DENSE, PLAIN) if apart else ()
    first: list[Run] = []
    for kind in kinds:
        of_kind = [run for run in runs if run.kind == kind]
        first += _likeliest(of_kind, n, shape)[: n // len(kinds)]
    others = [run for run in runs if not any(run is other for other in first)]
    rest = _likeliest(others, n, shape)
    return sorted((first + rest)[:n], key=_rank)


def _after(run: Run, up: Stats, frame: Frame, shape: str, stage: Stage) -> Run:
    """The run after one round of EM: new parameters, log-likelihood and gain."""
    loglik = float(round_to_grid(up.loglik / up.rows))
    shrink = stage.shrink if run.kind == DENSE else 0.0
    params = _m_step(run.params, up, frame, shape, shrink)
    gain = loglik - run.loglik if np.isfinite(run.loglik) else 0.0
    fewest = float(up.n.min())
    too_few = bool(fewest < cell_search.least_rows(len(frame.mean), shape))
    return Run(params, run.kind, loglik, fewest, too_few, max(gain, 0.0), run.gain)


def _likeliest(runs: list[Run], n: int, shape: str) -> list[Run]:
    """The n likeliest, without those that stand where a likelier one does."""
    kept: list[Run] = []
    for run in sorted(runs, key=_rank):
        if not any(_same(run, other, shape) for other in kept):
            kept.append(run)
    return kept[:n]


def _same(one: Run, other: Run, shape: str) -> bool:
    """Whether each mean of one lies near a mean of the other, in units of that component's variances."""
    variances = gaussian.full_covs(other.params, shape).diagonal(axis1=1, axis2=2)
    distances = (one.params.means[:, None] - other.params.means) ** 2 / variances
    return bool(distances.mean(-1).min(1).max() < SAME)


def _m_step(params: Params, up: Stats, frame: Frame, shape: str, shrink: float) -> Params:
    """The next mixture; in the standardised frame no eigenvalue is below RIDGE, so that no component collapses here.

    Covariances of components with few rows are drawn towards the mean covariance: otherwise rows of wide tables never leave the
    component that they are in.
    """
    found = mixture.m_step(params, up, shape, 0.0)
    unit = {"diag": frame.scale**2, "spherical": np.mean(frame.scale**2)}.get(shape, np.outer(frame.scale, frame.scale))
    standard = gaussian.unpack_covs(found.covs, shape) / unit
    if shape in ("full", "diag") and shrink > 0:
        standard = _shrunk(standard, up.n, shrink * (standard.shape[-1] + 1 if shape == "full" else 2))
    covs = kind_of(shape).positive(standard, RIDGE) * unit
    return found._replace(covs=gaussian.pack_covs(covs, shape))


def _shrunk(covs: np.ndarray, n: np.ndarray, rows: float) -> np.ndarray:
    """The covariances as if each component had `rows` more rows with the mean covariance."""
    share = (rows / (n + rows)).reshape((-1,) + (1,) * (covs.ndim - 1))
    return (1 - share) * covs + share * np.tensordot(n / n.sum(), covs, 1)


def _rank(run: Run) -> tuple[bool, float]:
    """Starved ones last; then by the likelihood that further rounds lead to, if gains go on falling as they did (Aitken)."""
    falls = min(run.gain / run.before, SLOWEST) if run.before > 0 else SLOWEST
    return run.starved, -(run.loglik + run.gain * falls / (1 - falls))


# ---- new mixtures from the components of several: their union is fitted, then reduced to K components at the server ----


def union(mixtures: Sequence[Params], shape: str) -> Params:
    """One mixture of all components of several.

    A component that several mixtures have is taken once: which of two equal ones a row is nearer to would be decided by rounding, and
    so by the split into clients.
    """
    weights = np.concatenate([p.weights for p in mixtures])
    means = np.concatenate([p.means for p in mixtures])
    covs = (
        np.stack([p.covs for p in mixtures]).mean(0) if shape == "tied" else np.concatenate([p.covs for p in mixtures])
    )
    first = _first_of_equals(means if shape == "tied" else np.column_stack([means, covs]))
    kept = np.unique(first)
    weights = np.bincount(first, weights)[kept]
    covs = covs if shape == "tied" else covs[kept]
    if shape == "spherical":
        covs = np.broadcast_to(covs[:, None], means[kept].shape)
    return Params(weights / weights.sum(), means[kept], covs)


def _first_of_equals(rows: np.ndarray) -> np.ndarray:  # (m, p) -> (m,)
    """For each row the place of the first row that is equal to it up to rounding."""
    sizes = np.ptp(rows, axis=0) + 1e-300
    apart = (np.abs(rows[:, None] - rows) / sizes).max(-1)  # (m, m)
    return (apart < EQUAL).argmax(1)


def recombined(asked: Params, up: Stats, k: int, frame: Frame, shape: str, rng: np.random.Generator) -> list[Params]:
    """Mixtures of k components for the cells that the union's components are."""
    cells = soft_cells(asked, up, frame, shape)
    if len(cells.n) < k:
        return []
    return [params_of(fit, frame, shape) for fit in cell_search.search(cells, k, shape, rng)[:NEW]]


def soft_cells(asked: Params, up: Stats, frame: Frame, shape: str) -> Cells:
    """The components that hold rows, as cells in the standardised frame."""
    held = up.n >= 2.0
    found = up.x / np.maximum(up.n, 1e-300)[:, None]
    means = (asked.means + found - frame.mean) / frame.scale
    covs = cell_covs(up.n, up.x, up.xx, frame, shape_of_union(shape))
    return Cells(round_to_grid(up.n[held]), round_to_grid(means[held]), round_to_grid(covs)[held])


def shape_of_union(shape: str) -> str:
    """How the union's covariances are asked for."""
    return "diag" if shape == "spherical" else shape


def params_of(fit: Fit, frame: Frame, shape: str) -> Params:
    """A mixture of cells in the clients' own units."""
    square = frame.scale**2 if fit.covs.ndim == 2 else np.outer(frame.scale, frame.scale)
    covs = fit.covs * square
    if shape == "tied":
        covs = np.tensordot(fit.weights, covs, 1)
    if shape == "spherical":
        covs = covs.mean(-1)
    weights = np.maximum(fit.weights, 1e-6)
    return Params(weights / weights.sum(), frame.mean + frame.scale * fit.means, gaussian.pack_covs(covs, shape))
