"""What clients are asked while a mixed mixture is fitted: sums over rows, no state except for personal weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import SUM, Client, client
from unpooled.maths import mixture
from unpooled.maths.kernel import log, responsibilities
from unpooled.models.initialization import Centre, Counts, count_rows
from unpooled.models.mixed import em
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.embedding import embed
from unpooled.models.mixed.messages import Guess, Look, Params, Spread, Stats
from unpooled.models.mixed.rows import Table, gaussian_block, split

# ---- before the first round ----


@client("mixed.look", SUM, adds=True, batched=False, exact=True)
def look(nothing: None, client: Client, *, columns: dict) -> Look:
    """How many rows there are, the count and sum of every column's values and levels, and values that are not of their kind."""
    kinds, x, w = _rows(client, columns)
    bad = np.where(w[:, None] > 0, bad_values(x, kinds), False)
    good = np.where(bad, np.nan, x)
    embedded = embed(good, kinds)
    seen = ~np.isnan(embedded)
    counts = np.nan_to_num(good[:, kinds.counts])
    return Look(np.asarray(w.sum()), w @ seen, w @ np.where(seen, embedded, 0.0), w @ counts, w @ bad)


@client("mixed.spread", SUM, adds=True, batched=False, exact=True)
def spread(centre: Centre, client: Client, *, columns: dict) -> Spread:
    """The sum of squares of every embedded column about the mean of all clients."""
    kinds, x, w = _rows(client, columns)
    return Spread(w @ np.nan_to_num(embed(x, kinds) - centre.mean) ** 2)


@client("mixed.cells", SUM, adds=True, batched=False, exact=True)
def cells(
    down: tuple[mixture.Params, ...], client: Client, *, columns: dict, shapes: list
) -> tuple[mixture.Stats, ...]:
    """Counts, sums and second moments of the embedded rows near each point, about the point."""
    kinds, x, w = _rows(client, columns)
    return tuple(mixture.e_step(kernels, _seen_by(kernels, x, kinds), w, shape) for kernels, shape in zip(down, shapes))


@client("mixed.cell_counts", SUM, adds=True, batched=False, exact=True)
def cell_counts(down: tuple[mixture.Params, ...], client: Client, *, columns: dict, shapes: list) -> tuple[Counts, ...]:
    """How many embedded rows are near each point."""
    kinds, x, w = _rows(client, columns)
    return tuple(count_rows(kernels, _seen_by(kernels, x, kinds), w, shape) for kernels, shape in zip(down, shapes))


@client("mixed.first", SUM, adds=True, batched=False, exact=True)
def first(down: tuple[Guess, ...], client: Client, *, columns: dict, shapes: list, shape: str) -> tuple[Stats, ...]:
    """The statistics of a round whose responsibilities are those of a mixture of embedded rows."""
    kinds, x, _ = _rows(client, columns)
    blocks = client_blocks(client, columns)
    answers = []
    for guess, own in zip(down, shapes):
        joint = mixture.log_joint(guess.embedded, _seen_by(guess.embedded, x, kinds), own)
        r = responsibilities(joint.T[None], 1.0)[0][0].T
        answers.append(em.first_step(guess.gaussian, blocks, r, kinds, shape))
    return tuple(answers)


# ---- rounds ----


@client("mixed.e_step", SUM, adds=True, batched=False)
def e_step(down: tuple[Params, ...], client: Client, *, columns: dict, shape: str) -> tuple[Stats, ...]:
    """Counts, sums, second moments and counts by level of each component, weighted by how probable it is for each row."""
    blocks = client_blocks(client, columns)
    kinds = Columns.of(columns)
    return tuple(em.e_step(params, blocks, kinds, shape) for params in down)


@client("mixed.personal_e_step", SUM, batched=False)
def personal_e_step(
    down: tuple[Params, ...], client: Client, *, columns: dict, shape: str, ids: list
) -> tuple[Stats, ...]:
    """The same sums under the client's own weights, which it updates and keeps."""
    blocks = client_blocks(client, columns)
    kinds = Columns.of(columns)
    answers = []
    for i, params in zip(ids, down):
        mine: Any = client.state.get(f"weights-{i}", params.gaussian.weights)
        stats = em.e_step(params, blocks, kinds, shape, log(np.maximum(mine, 1e-300)))
        client.state[f"weights-{i}"] = stats.gaussian.n / stats.gaussian.n.sum()
        answers.append(stats)
    return tuple(answers)


# ---- rows ----


def bad_values(x: np.ndarray, columns: Columns) -> np.ndarray:
    """Which values are not of the kind of their column, (n, d) bool; NaN is a missing value of any kind."""
    bad = np.isinf(x)
    whole = [*columns.discrete, *columns.counts]
    bad[:, whole] |= (x[:, whole] < 0) | (np.floor(x[:, whole]) != x[:, whole])
    bad[:, columns.discrete] |= x[:, columns.discrete] >= columns.sizes
    positive = columns.gaussian[columns.is_log]
    bad[:, positive] |= x[:, positive] <= 0
    bad[:, unused(columns)] = False
    return bad & ~np.isnan(x)


def unused(columns: Columns) -> np.ndarray:
    """Columns that are in no block."""
    used = np.concatenate([columns.gaussian, columns.discrete, columns.counts])
    return np.setdiff1d(np.arange(len(columns.kinds)), used)


def _rows(client: Client, columns: dict) -> tuple[Columns, np.ndarray, np.ndarray]:
    """The kinds of the columns, rows in float64 and their weights; rows of weight 0 are left out."""
    x = to_numpy(client.x)
    w = to_numpy(client.w).astype(np.float64)
    if not (w > 0).all():
        x, w = x[w > 0], w[w > 0]
    return Columns.of(columns), x.astype(np.float64, copy=False), w


def client_blocks(client: Client, columns: dict) -> Table:
    """The rows by block, kept for the next rounds."""
    key = f"mixed.{json.dumps(columns)}"
    if key not in client.memo:
        kinds, x, w = _rows(client, columns)
        client.memo[key] = split(x, w, kinds)
    return client.memo[key]


def client_densities(params: Params, client: Client, columns: dict, shape: str) -> tuple[np.ndarray, np.ndarray]:
    """(density of each row in each component over the row's largest (n, k), row weights (n,)), without the mixture's weights."""
    kinds, x, w = _rows(client, columns)
    unweighted = params._replace(gaussian=params.gaussian._replace(weights=np.ones_like(params.gaussian.weights)))
    log_density = em.log_joint(unweighted, x, kinds, shape)
    return np.exp(log_density - log_density.max(-1, keepdims=True)), w


def _seen_by(params: mixture.Params, x: np.ndarray, columns: Columns) -> np.ndarray:
    """Embedded rows, or the Gaussian block alone where the mixture has only its columns."""
    if params.means.shape[1] == len(columns.gaussian):
        return gaussian_block(x, columns)[0]
    return embed(x, columns)
