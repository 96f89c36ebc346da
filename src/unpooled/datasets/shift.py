"""Clients that differ in labels, inputs and concepts, in any combination, with the true concepts.

>>> import numpy as np
>>> x, y = np.random.default_rng(0).random((600, 5)), np.arange(600) % 3
>>> made = build(x, y, clients=6, concepts=2, corrupted=0.5, random_state=0)
>>> sorted(set(made.concepts.values())), made.maps.tolist()
([0, 1], [[0, 1, 2], [2, 1, 0]])
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from unpooled.data.tables import numbered
from unpooled.datasets import corruptions
from unpooled.errors import BadParameter
from unpooled.parameters import one_of

SKEWS = ("lda", "lda_prior")
Rows = tuple[np.ndarray, np.ndarray]  # (n, d) and (n,)


class Shifted(NamedTuple):
    """Clients by name, with the concept and corruption of each."""

    train: dict[str, Rows]
    test: dict[str, Rows]  # held-out rows of the same clients
    concepts: dict[str, int]
    corruptions: dict[str, str]  # "" or "blur 3"
    maps: np.ndarray  # (concepts, classes): true class to label
    shares: np.ndarray  # (clients, classes): the drawn label shares
    generators: dict[str, np.random.Generator]  # of each client's corruption, as it was before: see `like`


def build(
    x: np.ndarray,
    y: np.ndarray,
    clients: int,
    *,
    rows: int | None = None,
    alpha: float = 1.0,
    skew: str = "lda",
    concepts: int | Sequence[float] = 3,
    corrupted: float | Sequence[float] = 0.2,
    severity: tuple[int, int] = (1, 5),
    test_share: float = 0.1,
    random_state: Any = None,
) -> Shifted:
    """Clients of equal size from pooled images (n, side, side[, 3]) or rows (n, d) and classes 0, 1, ...

    rows : rows per client; by default all rows, divided evenly.
    alpha, skew : label shares of a client from Dirichlet(alpha, ..., alpha) ("lda"), or from Dirichlet(alpha p) with p
    the shares of all rows ("lda_prior": ten classes make it ten times more skewed). alpha=inf: as in the pool.
    concepts : how many, or the share of clients that has each; see `label_maps`.
    corrupted : the share of clients with corrupted inputs, for all concepts or for each; one corruption per client.
    severity : the range from which each corrupted client's severity is drawn.
    """
    rng = np.random.default_rng(random_state)
    y = np.asarray(y, dtype=np.int64)
    classes = int(y.max()) + 1
    shares = np.full(concepts, 1 / concepts) if isinstance(concepts, int) else np.asarray(concepts, dtype=float)
    _check(len(y), clients, rows, alpha, skew, shares, corrupted)
    maps = label_maps(len(shares), classes)
    chosen, wanted = deal(y, clients, rows or len(y) // clients, alpha, skew, rng)
    concept = rng.permutation(np.repeat(np.arange(len(shares)), _counts(shares, clients)))
    damage = _damage(x, concept, np.broadcast_to(corrupted, shares.shape), severity, rng)
    names = numbered(clients)
    held = round(chosen.shape[1] * test_share)
    train, test, generators = {}, {}, {}
    for i, name in enumerate(names):
        generators[name] = deepcopy(rng)
        inputs = _as_rows(_damaged(x[chosen[i]], damage[i], rng))
        labels = maps[concept[i]][y[chosen[i]]]
        test[name] = (inputs[:held], labels[:held])
        train[name] = (inputs[held:], labels[held:])
    truth = {name: int(c) for name, c in zip(names, concept)}
    return Shifted(train, test, truth, dict(zip(names, damage)), maps, wanted, generators)


def like(made: Shifted, name: str, x: np.ndarray, y: np.ndarray) -> Rows:
    """Other images or rows and classes made like those of a client: its corruption, with the same direction or angle, and its labels."""
    inputs = _as_rows(_damaged(x, made.corruptions[name], deepcopy(made.generators[name])))
    return inputs, made.maps[made.concepts[name]][np.asarray(y, dtype=np.int64)]


def label_maps(concepts: int, classes: int) -> np.ndarray:
    """(concepts, classes) true class to label: as it is, C - 1 - y, then y + 1, y + 2, ... modulo C."""
    y = np.arange(classes)
    maps = np.stack([y, classes - 1 - y, *((y + k) % classes for k in range(1, max(concepts - 1, 1)))])[:concepts]
    if len(np.unique(maps, axis=0)) < concepts:
        raise BadParameter(f"{concepts} concepts of {classes} classes are not all different: ask for fewer concepts")
    return maps


def unseen(x: np.ndarray, y: np.ndarray, maps: np.ndarray) -> list[Rows]:
    """For each concept a new client: the same rows with the concept's labels."""
    inputs = _as_rows(_unit(x))
    return [(inputs, m[np.asarray(y, dtype=np.int64)]) for m in maps]


# ---- rows of each client ----


def deal(
    y: np.ndarray, clients: int, rows: int, alpha: float, skew: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(places (clients, rows), label shares (clients, classes)): every client draws its labels, and no row is used
    twice.

    A class without rows left is replaced by the others in the client's own proportions.
    """
    prior = np.bincount(y) / len(y)
    pools = [rng.permutation(np.flatnonzero(y == c)) for c in range(len(prior))]
    left = np.array([len(p) for p in pools])
    wanted = _label_shares(prior, clients, alpha, skew, rng)
    out = np.empty((clients, rows), np.int64)
    for i, q in enumerate(wanted):
        take = _draw(q, rows, left, rng)
        mine = [pools[c][left[c] - t : left[c]] for c, t in enumerate(take)]
        left = left - take
        out[i] = rng.permutation(np.concatenate(mine))
    return out, wanted


def _label_shares(prior: np.ndarray, clients: int, alpha: float, skew: str, rng: np.random.Generator) -> np.ndarray:
    """The share of each label at each client: the prior itself, or drawn from a Dirichlet distribution."""
    if np.isinf(alpha):
        return np.tile(prior, (clients, 1))
    each = np.full(len(prior), alpha) if skew == "lda" else alpha * prior
    return rng.dirichlet(np.maximum(each, 1e-3), size=clients)


def _draw(q: np.ndarray, rows: int, left: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(classes,) how many rows of each class, never more than are left."""
    take = np.zeros(len(q), np.int64)
    while (short := rows - take.sum()) > 0:
        open_ = take < left
        p = np.where(open_, q, 0.0)
        p = p / p.sum() if p.sum() > 1e-9 else open_ / open_.sum()
        take = np.minimum(take + rng.multinomial(short, p), left)
    return take


def _counts(shares: np.ndarray, clients: int) -> np.ndarray:
    """The number of clients per share; they add up to `clients`."""
    ends = np.round(np.cumsum(shares) / shares.sum() * clients).astype(int)
    return np.diff(ends, prepend=0)


# ---- corruptions of each client ----


def _damage(
    x: np.ndarray, concept: np.ndarray, corrupted: np.ndarray, severity: tuple[int, int], rng: np.random.Generator
) -> list[str]:
    """For each client the corruption and severity, or ""."""
    known = corruptions.names(x)
    out = [""] * len(concept)
    for k, share in enumerate(corrupted):
        members = rng.permutation(np.flatnonzero(concept == k))
        for i in members[: round(share * len(members))]:
            out[i] = f"{rng.choice(known)} {rng.integers(severity[0], severity[1] + 1)}"
    return out


def _damaged(x: np.ndarray, damage: str, rng: np.random.Generator) -> np.ndarray:
    """Images scaled to [0, 1] and corrupted as `damage` says ("blur 3")."""
    x = _unit(x)
    if not damage:
        return x
    name, severity = damage.split()
    return corruptions.corrupt(x, name, int(severity), rng)


def _unit(x: np.ndarray) -> np.ndarray:
    """Bytes of images as numbers between 0 and 1; a table as it is."""
    return (x / 255).astype(np.float32) if x.dtype == np.uint8 else x


def _as_rows(x: np.ndarray) -> np.ndarray:
    """Flat rows; those of colour images hold one channel after the other, as networks read them."""
    x = np.moveaxis(x, -1, 1) if x.ndim == 4 else x
    return x.reshape(len(x), -1).astype(np.float32 if x.ndim > 2 else np.float64)


def _check(n: int, clients: int, rows: int | None, alpha: float, skew: str, shares: np.ndarray, corrupted: Any) -> None:
    """Refuse more rows than there are, an unknown skew, and shares outside of their range."""
    one_of("skew", skew, SKEWS)
    if clients < len(shares) or (rows or 1) * clients > n:
        raise BadParameter(f"{n} rows cannot make {clients} clients of {rows or 1} rows: ask for fewer or smaller ones")
    if (
        not alpha > 0
        or not (shares > 0).all()
        or not np.all((np.asarray(corrupted) >= 0) & (np.asarray(corrupted) <= 1))
    ):
        raise BadParameter("alpha and the shares of concepts should be above 0, and corrupted between 0 and 1")
