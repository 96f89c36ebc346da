"""Where a mixed mixture starts: two SUMs for the columns, five over cells of embedded rows, one for the first statistics.

Then a few rounds of EM from several starts of every size, all in the same SUMs, of which the likeliest stay. Only totals and the seed
decide, so that the start does not depend on how rows are split into clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.errors import BadData
from unpooled.federation import Federation, least_rows
from unpooled.maths import mixture
from unpooled.models import initialization
from unpooled.models.initialization import Centre, Frame, without_constants
from unpooled.models.mixed import em, levels, merging
from unpooled.models.mixed.columns import MAX_LEVELS, Columns
from unpooled.models.mixed.embedding import balanced, level_part
from unpooled.models.mixed.messages import Guess, Params, Prior, Stats
from unpooled.models.mixed.questions import cell_counts, cells, e_step, first, look, spread
from unpooled.models.mixture import few_rows

MORE = 2  # starts of either kind that are compared, beyond those asked for
SHORT = 4  # rounds of EM after which the likeliest stay
SPARE = 5  # components beyond those asked for, that mergers take away
ROWS_A_COMPONENT = 10
SAFE = 2  # times the least rows of a study, of a component that goes on to the next round
DIGITS = 9  # of a log-likelihood per row by which starts are ranked


class Seen(NamedTuple):
    """What a first look at all rows says."""

    columns: Columns  # with the number of levels of every discrete column
    frame: Frame  # of the embedded rows
    prior: Prior


class Settings(NamedTuple):
    """What a fit is told by its parameters."""

    shape: str
    reg: float
    smoothing: float


# ---- a first look ----


def seen(fed: Federation, given: Columns, names: Sequence[str]) -> Seen:
    """Levels, means and scales of all columns: two SUMs."""
    asked = Columns(given.kinds, [MAX_LEVELS if n < 0 else n for n in given.levels])
    found = tree.map(to_numpy, fed.sum(look.using(columns=asked.option), None))
    _refuse(found.bad, asked, given, names)
    columns = _counted(found, asked, given)
    kept = _kept(asked, columns)
    values = found.seen[kept]
    sums = found.x[kept]
    if not values[: level_part(columns).start].all():
        raise BadData(f"column {_first_empty(values, columns, names)!r} holds no value at any client: drop it")
    mean = sums / np.maximum(values, 1e-300)
    squares = to_numpy(fed.sum(spread.using(columns=columns.option), Centre(mean)).xx)
    variance = squares / np.maximum(values, 1e-300)
    frame = Frame(mean, np.sqrt(without_constants(variance, mean)), np.asarray(float(found.rows)))
    first_count = len(columns.gaussian)
    counted = values[first_count : first_count + len(columns.counts)]
    overall = levels.shares(sums[level_part(columns)], columns)
    return Seen(columns, frame, Prior(overall, found.counts / np.maximum(counted, 1e-300)))


def _refuse(bad: np.ndarray, asked: Columns, given: Columns, names: Sequence[str]) -> None:
    """Refuse values that the kind of their column does not have."""
    if not bad.any():
        return
    j = int(np.argmax(bad > 0))
    kind, n = asked.kinds[j], asked.levels[j]
    wants = {
        "positive": "numbers above 0",
        "count": "whole numbers from 0",
        "binary": "0 and 1",
        "category": f"codes from 0 to {n - 1}",
        "ordered": f"codes from 0 to {n - 1}",
    }.get(kind, "finite numbers")
    more = "; give levels= where there are more" if given.levels[j] < 0 else ""
    raise BadData(
        f"column {names[j]!r} is of kind {kind!r} but {bad[j]:.0f} of its values are not {wants}: "
        f"name another kind or mend them{more}"
    )


def _counted(found: Any, asked: Columns, given: Columns) -> Columns:
    """The columns with the number of levels that were seen, where it was not given."""
    sizes = list(given.levels)
    held = found.x[level_part(asked)]
    for j, part in zip(asked.discrete, asked.parts):
        if given.levels[j] < 0:
            sizes[j] = max(int(np.flatnonzero(held[part]).max(initial=0)) + 1, 2)
    return Columns(given.kinds, sizes)


def _kept(asked: Columns, columns: Columns) -> np.ndarray:
    """Where the embedded columns of `columns` lie among those of `asked`."""
    first_level = level_part(asked).start
    parts = [np.arange(first_level)]
    parts += [first_level + part.start + np.arange(n) for part, n in zip(asked.parts, columns.sizes)]
    return np.concatenate(parts).astype(int)


def _first_empty(values: np.ndarray, columns: Columns, names: Sequence[str]) -> str:
    """The name of the first column without values."""
    order = [*columns.gaussian, *columns.counts]
    return names[order[int(np.argmin(values[: len(order)]))]]


# ---- starts ----


def starts(
    fed: Federation, found: Seen, sizes: Sequence[int], n_init: int, settings: Settings, rng: np.random.Generator
) -> list[Params]:
    """`n_init` mixtures for the first size, best first, then for the next."""
    columns = found.columns
    shape = settings.shape
    pure = len(columns.gaussian) == len(found.frame.mean)
    kinds = [(balanced(found.frame, columns), "diag", n_init + MORE)]
    if len(columns.gaussian) > 1:
        kinds.append((gaussian_frame(found), shape, 1))
    if pure:
        return [_whole(p) for p in _embedded(fed, found.frame, sizes, n_init, shape, columns, rng)]
    tried = [*sizes, _larger(sizes, float(found.frame.rows))]
    guesses = [_embedded(fed, frame, tried, each, own, columns, rng) for frame, own, each in kinds]
    shapes = [own for (_, own, _), some in zip(kinds, guesses) for _ in some]
    fits = _first_fits(fed, found, [p for some in guesses for p in some], shapes, settings)
    runs = _short_runs(fed, found, fits, settings)
    best = _likeliest(runs, tried, n_init + 1)
    (largest,) = _likeliest(runs, tried[-1:], 1)
    fewer = merging.merged(largest, [k for k in sizes if k < tried[-1]], shape, settings.reg)
    return _likeliest(_short_runs(fed, found, [*best[: -n_init - 1], *fewer.values()], settings), sizes, n_init)


def _larger(sizes: Sequence[int], rows: float) -> int:
    """A size with spare components, which are merged later."""
    return int(max(min(max(sizes) + SPARE, rows // ROWS_A_COMPONENT), max(sizes)))


def gaussian_frame(found: Seen) -> Frame:
    """Mean and scale of the Gaussian block's columns."""
    g = len(found.columns.gaussian)
    return Frame(found.frame.mean[:g], found.frame.scale[:g], found.frame.rows)


def _embedded(
    fed: Federation, frame: Frame, sizes: Sequence[int], each: int, shape: str, columns: Columns, rng: Any
) -> list[mixture.Params]:
    """Mixtures of embedded rows, `each` for every size."""

    def totals(kernels: tuple[mixture.Params, ...], shapes: list[str], counts: bool) -> tuple[Any, ...]:
        """Totals of regions of embedded rows, as counts or as sums."""
        question = cell_counts if counts else cells
        return fed.sum(question.using(columns=columns.option, shapes=shapes), kernels)

    return initialization.starts(initialization.Totals(fed, totals), frame, sizes, each, shape, rng)


def _whole(params: mixture.Params) -> Params:
    """A mixture of the Gaussian block as one of all columns, where there are no others."""
    none = np.zeros((len(params.weights), 0))
    return Params(params, none, none, none)


def _first_fits(
    fed: Federation, found: Seen, guesses: list[mixture.Params], shapes: list[str], settings: Settings
) -> list[Params]:
    """The mixed mixtures whose responsibilities are those of the guesses."""
    wide = [_alike(found, len(p.weights), settings.shape) for p in guesses]
    down = tuple(Guess(*p, base) for p, base in zip(guesses, wide))
    ask = first.using(columns=found.columns.option, shapes=shapes, shape=settings.shape)
    totals = [tree.map(to_numpy, total) for total in fed.sum(ask, down)]
    return [_updated(_blank(base, found), total, found, settings) for base, total in zip(wide, totals)]


def _alike(found: Seen, k: int, shape: str) -> mixture.Params:
    """k equal Gaussians with the moments of all rows."""
    frame = gaussian_frame(found)
    return initialization.wide(frame, np.tile(np.asarray(frame.mean), (k, 1)), shape) if len(frame.mean) else _none(k)


def _none(k: int) -> mixture.Params:
    """A Gaussian block without columns."""
    return mixture.Params(np.full(k, 1 / k), np.zeros((k, 0)), np.zeros((k, 0)))


def _blank(base: mixture.Params, found: Seen) -> Params:
    """A mixture with these Gaussians and the overall levels and counts."""
    k = len(base.weights)
    prior = found.prior
    return Params(base, np.tile(prior.levels, (k, 1)), np.tile(prior.mean, (k, 1)), np.zeros((k, len(prior.mean))))


def _updated(params: Params, stats: Stats, found: Seen, settings: Settings) -> Params:
    """The M-step with the settings of the fit."""
    return em.m_step(params, stats, found.prior, found.columns, *settings)


def _short_runs(fed: Federation, found: Seen, fits: list[Params], settings: Settings) -> list[tuple[Params, float]]:
    """(mixture, penalised log-likelihood per row) after a few rounds of EM from each."""
    ask = e_step.using(columns=found.columns.option, shape=settings.shape)
    least = least_rows(fed)
    for _ in range(SHORT):
        asked = fits
        answers = [tree.map(to_numpy, up) for up in fed.sum(ask, tuple(fits))]
        fits = [_next_of(p, up, found, settings, least) for p, up in zip(asked, answers)]
    scores = [objective(p, up, found.prior, settings.smoothing) for p, up in zip(asked, answers)]
    return list(zip(fits, scores))


def _next_of(asked: Params, up: Stats, found: Seen, settings: Settings, least: float) -> Params:
    """The mixture after a round; where components hold few rows, a study goes on without them from where it asked."""
    kept = few_rows.held([up.gaussian.n], SAFE * least)
    return _updated(asked, up, found, settings) if kept.all() else em.without(asked, kept, settings.shape)


def objective(params: Params, stats: Stats, prior: Prior, smoothing: float) -> float:
    """The log-likelihood and the log prior, per row."""
    whole = float(stats.gaussian.loglik) + em.log_prior(params, prior, smoothing)
    return whole / float(stats.gaussian.rows)


def _likeliest(runs: list[tuple[Params, float]], sizes: Sequence[int], n_init: int) -> list[Params]:
    """The likeliest runs of each size, `n_init` of them; where a study has left components out, of the size next to it."""
    found = {len(run[0].gaussian.weights) for run in runs}
    out = []
    for k in sizes:
        nearest = min(found, key=lambda size: (abs(size - k), size))
        mine = [run for run in runs if len(run[0].gaussian.weights) == nearest]
        ranked = sorted(mine, key=lambda run: -round(run[1], DIGITS))
        out += [ranked[i % len(ranked)][0] for i in range(n_init)]
    return out
