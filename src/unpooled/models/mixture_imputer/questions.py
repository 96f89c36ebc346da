"""What clients are asked while an imputer is fitted: sums over rows and over cells that clients hide from themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.maths import imputation, mixture
from unpooled.maths.imputation import Laws
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import Centre, Counts, count_rows, taken
from unpooled.models.mixture_imputer import checked, ensemble, logistic
from unpooled.models.mixture_imputer.calibration import BINS
from unpooled.models.mixture_imputer.checked import Checked
from unpooled.models.mixture_imputer.embedding import Embedding
from unpooled.models.mixture_imputer.gap_sums import GapCounts, GapSums, gap_counts, gap_sums, looked_at
from unpooled.models.mixture_imputer.logistic import Logistic
from unpooled.tree import message

BLOCK = 2000  # hidden cells at a time


@message("mixture_imputer.Look")
class Look(NamedTuple):
    """A first look at the embedded table."""

    rows: Float[Array, "", ">=0 rows"]
    seen: Float[Array, "e", ">=0 rows"]  # values that are not missing
    x: Float[Array, "e"]


@message("mixture_imputer.Spread")
class Spread(NamedTuple):
    """Sums of squares about the centre."""

    xx: Float[Array, "e", ">=0"]  # sum of squares about the centre


@message("mixture_imputer.Judged")
class Judged(NamedTuple):
    """How the means of columns of numbers, then mixtures, then logistic regressions did on the hidden cells of either half of the rows."""

    cells: Float[Array, "h j", ">=0 rows"]
    gram: Float[Array, "h j c c"]  # sums of products of two candidates' errors, in standard deviations of the column
    deviations: Float[Array, "e", ">=0"]  # sum over all values: how far from the mean, in standard deviations


@message("mixture_imputer.Asked")
class Asked(NamedTuple):
    """Candidates of any size, the scales of the embedded columns, and the regressions of levels."""

    candidates: tuple[Params, ...]
    scale: Float[Array, "e"]
    logistic: Logistic


@message("mixture_imputer.Ensemble")
class Ensemble(NamedTuple):
    """Candidates, and how much each counts in every column by the cells of the other half of the rows."""

    candidates: tuple[Params, ...]
    shares: Float[Array, "h j c"]
    checked: Checked


@client("mixture_imputer.look", SUM, adds=True, batched=False)
def look(nothing: None, client: Client, *, columns: dict) -> Look:
    """How many rows there are, and of each column or level how many values and their sum."""
    x, w = _table(client)
    embedded = Embedding.of(columns).embed(x)
    seen = ~np.isnan(embedded)
    return Look(np.asarray(w.sum()), w @ seen, w @ np.where(seen, embedded, 0.0))


@client("mixture_imputer.spread", SUM, adds=True, batched=False)
def spread(centre: Centre, client: Client, *, columns: dict) -> Spread:
    """The sum of squares of each column or level about the mean of all clients."""
    x, w = _table(client)
    return Spread(w @ np.nan_to_num(Embedding.of(columns).embed(x) - centre.mean) ** 2)


@client("mixture_imputer.e_step", SUM, adds=True, batched=False)
def e_step(down: tuple[Params, ...], client: Client, *, hide: float, columns: dict, logs: list) -> tuple[Stats, ...]:
    """Expected sufficient statistics under every candidate, missing values integrated out; `logs` says which are of logarithms."""
    (x, w), embedding = _table(client), Embedding.of(columns)
    x = _without(x, hide)
    embedded = {log: (embedding.logarithmic if log else embedding).embed(x) for log in set(logs)}
    return tuple(mixture.e_step(params, embedded[log], w, "full") for params, log in zip(down, logs))


@client("mixture_imputer.cells", SUM, adds=True, batched=False)
def cells(
    down: tuple[Params, ...], client: Client, *, hide: float, shapes: list, columns: dict, every: int = 1
) -> tuple[Stats, ...]:
    """Counts, sums and second moments of the rows near each point, for the start."""
    x, w = _shown(client, hide, columns, every)
    return tuple(mixture.e_step(kernels, x, w, shape) for kernels, shape in zip(down, shapes))


@client("mixture_imputer.cell_counts", SUM, adds=True, batched=False)
def cell_counts(
    down: tuple[Params, ...], client: Client, *, hide: float, shapes: list, columns: dict, every: int = 1
) -> tuple[Counts, ...]:
    """How many rows are near each point, for the start."""
    x, w = _shown(client, hide, columns, every)
    return tuple(count_rows(kernels, x, w, shape) for kernels, shape in zip(down, shapes))


@client("mixture_imputer.regress", SUM, adds=True, batched=False)
def regress(down: Logistic, client: Client, *, hide: float, columns: dict, which: list) -> tuple[logistic.Sums, ...]:
    """Scores and curvature of logistic regressions of columns of levels, at given coefficients; `which` are their columns."""
    embedding, (x, w) = Embedding.of(columns), _table(client)
    x = _without(x, hide)
    made: dict[int, np.ndarray] = {}
    answers = []
    for j, coef in zip(which, down.coefs):
        there = ~np.isnan(x[:, j])
        if j not in made:
            made = {j: logistic.predictors(down.filler, x[there], j, embedding, down.mean, down.scale)}
        z = made[j][:, : coef.shape[1]]
        answers.append(logistic.sums(to_numpy(coef), z, x[there, j].astype(int), w[there]))
    return tuple(answers)


@client("mixture_imputer.judge", SUM, adds=True, batched=False)
def judge(down: Asked, client: Client, *, hide: float, columns: dict, logs: list) -> Judged:
    """Products of the candidates' errors on the cells that were hidden while they were fitted."""
    embedding, (x, w) = Embedding.of(columns), _table(client)
    hidden = imputation.hidden(x, hide) & (w > 0)[:, None]
    which = imputation.half(x).astype(int)
    c = 1 + len(down.candidates) + (len(logistic.VARIANTS) if down.logistic.coefs else 0)
    gram = np.zeros((2, x.shape[1], c, c))
    for rows, of, blanked in _one_by_one(x, hidden):
        laws = ensemble.by_candidate(down.candidates, logs, blanked, embedding)
        for j in np.unique(of):
            mine = np.flatnonzero(of == j)
            errors = _errors(down, laws, blanked, x[rows[mine], j], mine, j, embedding)  # (cells, values, candidates)
            for h in (0, 1):
                some = which[rows[mine]] == h
                weighted = errors[some] * w[rows[mine][some]][:, None, None]
                found = errors.shape[2]
                gram[h, j, :found, :found] += np.tensordot(weighted, errors[some], axes=([0, 1], [0, 1]))
    cells = np.stack([w[which == h] @ hidden[which == h] for h in (0, 1)])
    away = (embedding.embed(x) - to_numpy(down.logistic.mean)) / to_numpy(down.scale)
    return Judged(cells, gram, w @ np.abs(np.nan_to_num(away)))


def _one_by_one(x: np.ndarray, hidden: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(row and column of hidden cells, their rows with this one cell blank), a block of cells at a time.

    The fit has seen none of the hidden cells; a cell is foretold from all others of its row, as a gap of the table is.
    """
    rows, columns = np.nonzero(hidden)
    for start in range(0, len(rows), BLOCK):
        some = slice(start, start + BLOCK)
        blanked = x[rows[some]]
        blanked[np.arange(len(blanked)), columns[some]] = np.nan
        yield rows[some], columns[some], blanked


def _errors(
    down: Asked, laws: list[Laws], shown: np.ndarray, truth: np.ndarray, rows: np.ndarray, j: int, embedding: Embedding
) -> np.ndarray:
    """Errors (cells, values, 1 + candidates) of hidden cells of column j, in standard deviations: of a number, or of levels' probabilities.

    Those of the column's mean come first; they are 0 in columns of levels, where nobody needs them.
    """
    if j not in embedding.discrete:
        place = embedding.parts[j].start
        mean = np.full(len(rows), to_numpy(down.logistic.mean)[place])
        found = np.stack([mean, *(imputation.mean(ensemble.cells(law, place, rows)) for law in laws)], axis=1)
        true = embedding.embedded_column(truth, j)
        return ((true[:, :1] - found) / to_numpy(down.scale)[place])[:, None, :]
    mixtures = [ensemble.level_probabilities(law, j, embedding, rows) for law in laws]
    more = logistic.probabilities(down.logistic, shown[rows], j, embedding)
    every = np.concatenate([np.stack(mixtures, axis=1), more], axis=1)  # (cells, candidates, levels)
    true = np.arange(embedding.levels[j]) == truth[:, None]
    errors = np.swapaxes(true[:, None] - every, 1, 2) / embedding.deviation(to_numpy(down.scale), j)
    return np.concatenate([np.zeros((*errors.shape[:2], 1)), errors], axis=2)


@client("mixture_imputer.calibrate", SUM, adds=True, batched=False)
def calibrate(
    down: Ensemble, client: Client, *, hide: float, columns: dict, logs: list
) -> Float[Array, "j b", ">=0 rows"]:
    """Histograms of |2 F(value) - 1| over a share `hide` of the numbers of each column: flat if intervals are right."""
    embedding, (x, w) = Embedding.of(columns), _table(client)
    hidden = imputation.hidden(x, hide) & (w > 0)[:, None]
    hidden[:, embedding.discrete] = False
    which = imputation.half(x).astype(int)
    shares = to_numpy(down.shares)
    total = np.zeros((x.shape[1], BINS))
    for rows, of, blanked in _one_by_one(x, hidden):
        laws = ensemble.by_candidate(down.candidates, logs, blanked, embedding)
        for j in np.unique(of):
            mine = np.flatnonzero(of == j)
            each = [ensemble.cells(law, embedding.parts[j].start, mine) for law in laws]
            law = checked.shrunk(ensemble.joined(each, shares[which[rows[mine]], j]), down.checked)
            central = np.abs(2 * imputation.cdf(law, embedding.embedded_column(x[rows[mine], j], j)[:, 0]) - 1)
            total[j] += np.histogram(central, bins=BINS, range=(0, 1), weights=w[rows[mine]])[0]
    return total


@client("mixture_imputer.gap_counts", SUM, adds=True, batched=False)
def count_gaps(nothing: None, client: Client, *, which: list) -> GapCounts:
    """How many rows have a value, and how many a gap, in the columns `which`."""
    return gap_counts(looked_at(*_table(client), which))


@client("mixture_imputer.gaps", SUM, adds=True, batched=False)
def gaps(single: Params, client: Client, *, columns: dict, which: list) -> GapSums:
    """How rows with a gap in the columns `which` differ from those without in what the other columns foretell."""
    embedding, (x, w) = Embedding.of(columns), _table(client)
    places = [embedding.parts[j].start for j in which]
    return gap_sums(single, embedding.embed(x), looked_at(x, w, which), places)


def _table(client: Client, every: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The client's rows and weights as 64 bit floats: all, or the part of about one row of `every`."""
    x, w = taken(client, every)
    return to_numpy(x).astype(np.float64), to_numpy(w).astype(np.float64)


def _shown(client: Client, hide: float, columns: dict, every: int) -> tuple[np.ndarray, np.ndarray]:
    """The embedded table without the hidden cells, and the row weights."""
    x, w = _table(client, every)
    return Embedding.of(columns).embed(_without(x, hide)), w


def _without(x: np.ndarray, hide: float) -> np.ndarray:
    """The encoded table without the hidden cells."""
    return np.where(imputation.hidden(x, hide), np.nan, x) if hide else x
