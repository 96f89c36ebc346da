"""What clients are asked while an imputer is fitted: sums over rows and over cells that clients hide from themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.maths import imputation, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models.initialization import Centre, Counts, count_rows
from unpooled.models.mixture_imputer.embedding import Embedding
from unpooled.models.mixture_imputer.ensemble import anchored, joined
from unpooled.tree import message

BINS = 200  # of the histogram by which intervals are calibrated


@message("mixture_imputer.Look")
class Look(NamedTuple):
    """A first look at the embedded table."""

    rows: Float[Array, "", ">=0 rows"]
    seen: Float[Array, "e", ">=0 rows"]  # values that are not missing
    x: Float[Array, "e"]


@message("mixture_imputer.Spread")
class Spread(NamedTuple):
    xx: Float[Array, "e", ">=0"]  # sum of squares about the centre


@message("mixture_imputer.Judged")
class Judged(NamedTuple):
    """How the candidates did on the hidden cells of either half of the rows."""

    cells: Float[Array, "h j", ">=0 rows"]
    gram: Float[Array, "h j c c"]  # sums of products of two candidates' errors, in standard deviations of the column


@message("mixture_imputer.Asked")
class Asked(NamedTuple):
    """Candidates of any size, and the scales of the embedded columns."""

    candidates: tuple[Params, ...]
    scale: Float[Array, "e"]


@message("mixture_imputer.Ensemble")
class Ensemble(NamedTuple):
    """Candidates, and how much each counts in every column by the cells of the other half of the rows."""

    candidates: tuple[Params, ...]
    shares: Float[Array, "h j c"]


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
def e_step(down: tuple[Params, ...], client: Client, *, hide: float, columns: dict) -> tuple[Stats, ...]:
    """Expected sufficient statistics under every candidate, missing values integrated out."""
    x, w = _shown(client, hide, columns)
    return tuple(mixture.e_step(params, x, w, "full") for params in down)


@client("mixture_imputer.cells", SUM, adds=True, batched=False)
def cells(down: tuple[Params, ...], client: Client, *, hide: float, shapes: list, columns: dict) -> tuple[Stats, ...]:
    """Counts, sums and second moments of the rows near each point, for the start."""
    x, w = _shown(client, hide, columns)
    return tuple(mixture.e_step(kernels, x, w, shape) for kernels, shape in zip(down, shapes))


@client("mixture_imputer.cell_counts", SUM, adds=True, batched=False)
def cell_counts(
    down: tuple[Params, ...], client: Client, *, hide: float, shapes: list, columns: dict
) -> tuple[Counts, ...]:
    """How many rows are near each point, for the start."""
    x, w = _shown(client, hide, columns)
    return tuple(count_rows(kernels, x, w, shape) for kernels, shape in zip(down, shapes))


@client("mixture_imputer.judge", SUM, adds=True, batched=False)
def judge(down: Asked, client: Client, *, hide: float, columns: dict) -> Judged:
    """Products of the candidates' errors on the cells that were hidden while they were fitted."""
    embedding, (x, w) = Embedding.of(columns), _table(client)
    hidden = imputation.hidden(x, hide) & (w > 0)[:, None]
    truth = embedding.embed(x)
    d, c = x.shape[1], len(down.candidates)
    laws = anchored([_hidden_laws(params, x, hidden, embedding) for params in down.candidates])
    first = laws[0]
    errors = np.stack([(truth[law.rows, law.columns] - imputation.mean(law)) for law in laws], axis=1)
    errors = errors / to_numpy(down.scale)[first.columns][:, None]
    of, weight, which = embedding.column_of[first.columns], w[first.rows], imputation.half(x)
    gram = np.zeros((2, d, c, c))
    for h, j in np.ndindex(2, d):
        mine = (of == j) & (which[first.rows] == h)
        gram[h, j] = errors[mine].T @ (errors[mine] * weight[mine][:, None])
    return Judged(np.stack([w[which == h] @ hidden[which == h] for h in (0, 1)]), gram)


@client("mixture_imputer.calibrate", SUM, adds=True, batched=False)
def calibrate(down: Ensemble, client: Client, *, hide: float, columns: dict) -> Float[Array, "b", ">=0 rows"]:
    """Histogram of |2 F(value) - 1| over hidden numbers: flat if intervals are right."""
    embedding, (x, w) = Embedding.of(columns), _table(client)
    hidden = imputation.hidden(x, hide) & (w > 0)[:, None]
    truth = embedding.embed(x)
    laws = anchored([_hidden_laws(params, x, hidden, embedding) for params in down.candidates])
    of, which = embedding.column_of[laws[0].columns], imputation.half(x).astype(int)[laws[0].rows]
    law = joined(laws, to_numpy(down.shares)[which, of])
    numbers = embedding.is_number[law.columns]
    law = imputation.Laws(*(a[numbers] for a in law))
    central = np.abs(2 * imputation.cdf(law, truth[law.rows, law.columns]) - 1)
    return np.histogram(central, bins=BINS, range=(0, 1), weights=w[law.rows])[0].astype(np.float64)


def _hidden_laws(params: Params, x: np.ndarray, hidden: np.ndarray, embedding: Embedding) -> imputation.Laws:
    """The distributions of hidden cells, in the order of rows and embedded columns."""
    law = imputation.laws(params, embedding.embed(np.where(hidden, np.nan, x)))
    law = imputation.Laws(*(a[hidden[law.rows, embedding.column_of[law.columns]]] for a in law))
    order = np.lexsort((law.columns, law.rows))
    return imputation.Laws(*(a[order] for a in law))


def _table(client: Client) -> tuple[np.ndarray, np.ndarray]:
    return to_numpy(client.x).astype(np.float64), to_numpy(client.w).astype(np.float64)


def _shown(client: Client, hide: float, columns: dict) -> tuple[np.ndarray, np.ndarray]:
    """The embedded table without the hidden cells, and the row weights."""
    x, w = _table(client)
    x = np.where(imputation.hidden(x, hide), np.nan, x) if hide else x
    return Embedding.of(columns).embed(x), w
