"""Data of the clustering experiments: rows, their true clusters, and the client of each."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA

from unpooled.datasets import encoder, shared

PER_HOLDER = 5  # a client that holds the smallest class has about so many rows of it
PER_CLIENT = 50


class Problem(NamedTuple):
    rows: dict[str, np.ndarray]  # client -> (n, d)
    truth: dict[str, np.ndarray]  # client -> (n,)

    @property
    def k(self) -> int:
        return len(np.unique(np.concatenate(list(self.truth.values()))))

    @property
    def local_k(self) -> dict[str, int]:
        """What methods that know K_g are told."""
        return {name: len(np.unique(y)) for name, y in self.truth.items()}


def by_client(x: np.ndarray, y: np.ndarray, owner: np.ndarray) -> Problem:
    names = {f"c{c:04}": owner == c for c in np.unique(owner)}
    return Problem({n: x[rows] for n, rows in names.items()}, {n: y[rows] for n, rows in names.items()})


def open_split(y: np.ndarray, clients: int, rng: np.random.Generator, fewest: int = 2, most: int = 8) -> np.ndarray:
    """(n,) clients: each holds 2 to 8 classes drawn at random, and the rows of a class are dealt to its holders."""
    k = y.max() + 1
    holds = np.zeros((clients, k), dtype=bool)
    for c in range(clients):
        holds[c, rng.choice(k, rng.integers(min(fewest, k), min(most, k) + 1), replace=False)] = True
    owner = np.empty(len(y), dtype=int)
    for z in range(k):
        holders = np.flatnonzero(holds[:, z]) if holds[:, z].any() else rng.integers(clients, size=1)
        rows = rng.permutation(np.flatnonzero(y == z))
        owner[rows] = holders[np.arange(len(rows)) % len(holders)]
    return owner


def client_count(y: np.ndarray) -> int:
    """100, or fewer where rows are few."""
    smallest = np.bincount(y).min() * len(np.unique(y)) / 5  # five classes a client on average
    return int(np.clip(min(len(y) / PER_CLIENT, smallest / PER_HOLDER), 10, 100))


@cache
def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(x, y): images as 20 principal components; tables of unlike units standardised, more than 20 columns to 20 components."""
    if name in ("mnist", "fashion"):
        images = shared.mnist() if name == "mnist" else shared.fashion_mnist()
        x = images.x_train.reshape(len(images.x_train), -1) / 255.0
        return _components(x), images.y_train.astype(int)
    if name.startswith("cifar10"):
        return photographs(int(name.partition("-")[2] or 20))
    if name == "waveform":
        return waves()
    data = shared.clustering(name, y="sex" if name == "abalone" else "y")
    x, y = data.x[:, data.x.std(0) > 0], np.unique(data.y, return_inverse=True)[1]
    if x.shape[1] > 2 and name not in ("optdigits", "pendigits", "satimage"):
        x = (x - x.mean(0)) / x.std(0)
    return (_components(x) if x.shape[1] > 20 else x), y


@cache
def encoded_photographs(rows: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """(features (rows, 512), classes) of the first photographs of CIFAR-10, kept in a temporary file."""
    file = Path(tempfile.gettempdir()) / f"unpooled-cifar10-{rows}.npy"
    images = shared.cifar10()
    if not file.exists():
        import torch

        place = "cuda" if torch.cuda.is_available() else "cpu"
        np.save(file, encoder.encode(images.x_train[:rows], place, side=128, blocks=encoder.LATE))
    x = np.load(file)
    return x, images.y_train[: len(x)].astype(int)


def photographs(axes: int) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10 as principal components of standardised features of a frozen network."""
    x, y = encoded_photographs()
    return _components((x - x.mean(0)) / x.std(0), axes), y


def waves(rows: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Waveform-like: each class mixes two of three triangular waves over 21 points in random shares, and noise of variance 1."""
    rng = np.random.default_rng(21)
    peaks = np.array([7, 15, 11])
    base = np.maximum(6 - np.abs(np.arange(1, 22) - peaks[:, None]), 0.0)  # (3, 21)
    y, share = rng.integers(3, size=rows), rng.uniform(size=(rows, 1))
    first, second = np.array([0, 0, 1])[y], np.array([1, 2, 2])[y]
    return share * base[first] + (1 - share) * base[second] + rng.normal(size=(rows, 21)), y


def _components(x: np.ndarray, axes: int = 20) -> np.ndarray:
    return PCA(axes, svd_solver="covariance_eigh").fit_transform(x)


def real(name: str, seed: int, clients: int | None = None) -> Problem:
    x, y = table(name)
    rng = np.random.default_rng([seed, 17])
    return by_client(x, y, open_split(y, clients or client_count(y), rng))


def identical(name: str, seed: int, clients: int = 50) -> Problem:
    """Rows dealt at random: all clients hold everything."""
    return _dealt(*table(name), seed, clients)


def identical_separated(r_min: float, seed: int, clients: int = 50) -> Problem:
    """The sensitivity study's Gaussians, dealt at random."""
    p = separated(r_min, seed)
    return _dealt(np.concatenate(list(p.rows.values())), np.concatenate(list(p.truth.values())), seed, clients)


def _dealt(x: np.ndarray, y: np.ndarray, seed: int, clients: int) -> Problem:
    return by_client(x, y, np.random.default_rng([seed, 18]).permutation(len(y)) % clients)


def separated(
    r_min: float, seed: int, *, k: int = 10, d: int = 4, clients: int = 50, rows: int = 100, imbalance: str = "none"
) -> Problem:
    """Round Gaussians of unit variance whose centres are at least r_min apart, in a box; `rows` a client, 2 to 6 clusters each.

    imbalance: "clients" (sizes lognormal), "clusters" (weights within a client from Dirichlet(1)), "both" or "none".
    """
    rng = np.random.default_rng([seed, 19])
    centres = _apart(r_min, k, d, rng)
    sizes = np.full(clients, rows)
    if imbalance in ("clients", "both"):
        sizes = np.clip(rng.lognormal(np.log(80), 0.7, clients), 30, 500).astype(int)
    x, y, owner = [], [], []
    for c, n in enumerate(sizes):
        held = rng.choice(k, rng.integers(2, min(6, k) + 1), replace=False)
        weights = rng.dirichlet(np.ones(len(held))) if imbalance in ("clusters", "both") else None
        z = rng.choice(held, n, p=weights)
        x.append(centres[z] + rng.normal(size=(n, d)))
        y.append(z)
        owner.append(np.full(n, c))
    return by_client(np.concatenate(x), np.concatenate(y), np.concatenate(owner))


def _apart(r_min: float, k: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """(k, d) uniform in a box of side 6, or twice r_min, rejecting those too near; the box grows when it is full."""
    centres: list[np.ndarray] = []
    side, tries = max(6.0, 2 * r_min) * (k / 10) ** (1 / d), 0
    while len(centres) < k:
        new = rng.uniform(0, side, d)
        if all(np.linalg.norm(new - c) >= r_min for c in centres):
            centres.append(new)
        tries += 1
        side *= 1.01 if tries % 200 == 0 else 1.0
    return np.array(centres)
