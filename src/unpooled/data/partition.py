"""Ways to split pooled rows into clients: each returns the client of every row, to be given as `by=`. Nothing is sent.

>>> from unpooled.data import partition
>>> partition.iid(5, clients=2, random_state=0).tolist()
[0, 0, 1, 0, 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.errors import BadParameter

Seed = Any  # None, a number or a np.random.Generator


def iid(n: int, clients: int, *, random_state: Seed = None) -> np.ndarray:
    """Random clients of equal size (up to one row); (n,)."""
    _check(n, clients, 1)
    return np.random.default_rng(random_state).permutation(n) % clients


def dirichlet(y: Any, clients: int, alpha: float = 0.5, *, min_rows: int = 1, random_state: Seed = None) -> np.ndarray:
    """Label skew: the rows of each class are divided by Dirichlet(alpha) shares; a small alpha gives few classes per
    client.
    """
    _positive(alpha, "alpha")
    rng = np.random.default_rng(random_state)
    classes, index = np.unique(np.asarray(y), return_inverse=True)
    _check(len(index), clients, min_rows)
    owner = np.empty(len(index), np.int64)
    for c in range(len(classes)):
        rows = rng.permutation(np.flatnonzero(index == c))
        owner[rows] = _deal(len(rows), rng.dirichlet(np.full(clients, alpha)))
    return _at_least(owner, clients, min_rows, rng)


def quantity_skew(
    n: int,
    clients: int,
    *,
    alpha: float | None = None,
    sigma: float | None = None,
    min_rows: int = 1,
    random_state: Seed = None,
) -> np.ndarray:
    """Clients of unequal sizes; rows are assigned at random.

    Parameters
    ----------
    n : int
        Number of rows.
    clients : int
        Number of clients.
    alpha : float, optional
        Sizes in proportion to a draw from Dirichlet(alpha); small values give very unequal ones.
    sigma : float, optional
        Sizes in proportion to lognormal draws with this standard deviation of their logarithm. Give one of the two.
    min_rows : int, default=1
        Rows that every client has at least.
    random_state : int or Generator, optional
        Seed.

    Returns
    -------
    array of shape (n,)
        The client of each row, to be given as `by=`.
    """
    if (alpha is None) == (sigma is None):
        raise BadParameter("quantity_skew needs either alpha= (Dirichlet sizes) or sigma= (lognormal sizes)")
    _check(n, clients, min_rows)
    rng = np.random.default_rng(random_state)
    if alpha is not None:
        shares = rng.dirichlet(np.full(clients, _positive(alpha, "alpha")))
    else:
        sizes = rng.lognormal(0.0, _positive(sigma, "sigma"), clients)
        shares = sizes / sizes.sum()
    return _at_least(rng.permutation(_deal(n, shares)), clients, min_rows, rng)


def sorted_chunks(
    x: Any, y: Any = None, *, clients: int, chunks: int = 1, column: int | None = None, random_state: Seed = None
) -> np.ndarray:
    """Feature skew: rows sorted by a column, cut into equal chunks, `chunks` of them for each client, at random.

    The column is `column`, else the one that correlates most with `y`.
    """
    x = np.asarray(x, dtype=np.float64)
    _check(len(x), clients * chunks, 1)
    if column is None:
        if y is None:
            raise BadParameter("sorted_chunks needs column=, or y= to find the column that correlates most with it")
        column = most_correlated(x, y)
    chunk = np.empty(len(x), np.int64)
    chunk[np.argsort(x[:, column], kind="stable")] = np.arange(len(x)) * (clients * chunks) // len(x)
    dealt = np.random.default_rng(random_state).permutation(clients * chunks) % clients
    return dealt[chunk]


def most_correlated(x: np.ndarray, y: Any) -> int:
    """The column with the largest absolute correlation with `y`, over the rows where its value is present."""
    y = np.asarray(y, dtype=np.float64)[:, None]
    here = ~np.isnan(x)
    n = np.maximum(here.sum(0), 1)

    def centred(a: np.ndarray) -> np.ndarray:  # (n, d), zero where the row is missing
        return np.where(here, a - np.where(here, a, 0.0).sum(0) / n, 0.0)

    dx, dy = centred(x), centred(y)
    scale = np.sqrt((dx**2).sum(0) * (dy**2).sum(0))
    return int(np.argmax(np.abs((dx * dy).sum(0)) / np.where(scale > 0, scale, np.inf)))


def by_column(values: Any, clients: int | None = None, *, random_state: Seed = None) -> np.ndarray:
    """One client per value; or, with `clients`, the values divided at random into that many clients."""
    found, index = np.unique(np.asarray(values), return_inverse=True)
    return index if clients is None else iid(len(found), clients, random_state=random_state)[index]


# ---- helpers ----


def _check(n: int, clients: int, min_rows: int) -> None:
    """Refuse a split into fewer than one part, or with fewer rows than the parts need."""
    if clients < 1 or min_rows < 0:
        raise BadParameter(f"clients={clients} and min_rows={min_rows} should be at least 1 and 0")
    if n < clients * min_rows:
        raise BadParameter(f"{n} rows are too few for {clients} parts of {max(min_rows, 1)} or more: ask for fewer")


def _positive(value: float | None, name: str) -> float:
    """The value; refused unless it is above 0."""
    if value is None or not value > 0:
        raise BadParameter(f"{name}={value} should be above 0")
    return value


def _deal(n: int, shares: np.ndarray) -> np.ndarray:
    """The client of each of n rows in order, by share; (n,) sorted."""
    ends = np.round(np.cumsum(shares) * n).astype(np.int64)
    return np.searchsorted(ends[:-1], np.arange(n), side="right")


def _at_least(owner: np.ndarray, clients: int, min_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Rows moved from the largest clients to those with fewer than `min_rows`."""
    counts = np.bincount(owner, minlength=clients)
    short = np.maximum(min_rows - counts, 0)
    if not short.any():
        return owner
    order = np.lexsort((rng.random(len(owner)), owner))
    rank = np.empty_like(owner)  # rank of a row within its client: the largest clients have the highest ranks
    rank[order] = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner[order]]
    moved = np.argsort(-rank, kind="stable")[: short.sum()]
    owner = owner.copy()
    owner[moved] = np.repeat(np.arange(clients), short)
    return owner
