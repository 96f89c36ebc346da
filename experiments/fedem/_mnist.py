"""MNIST as the paper has it: constant pixels dropped, the others standardised, 20 principal components, 100 clients."""

from __future__ import annotations

import numpy as np

from unpooled.data import shared
from unpooled.maths.gaussian import pack_covs
from unpooled.maths.mixture import Params


def components(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, 20) and the digits."""
    images = shared.mnist()
    x = np.concatenate([images.x_train, images.x_test]).reshape(70_000, -1).astype(np.float64)
    y = np.concatenate([images.y_train, images.y_test])
    x = x[:, x.std(axis=0) > 0]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    vectors = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :20]
    chosen = np.random.default_rng(seed).permutation(len(x))[:rows]
    return (x @ vectors)[chosen], y[chosen]


def clients(y: np.ndarray, split: str, rng: np.random.Generator, n: int = 100) -> np.ndarray:
    """The client of each row: by chance, or one digit a client as far as it goes."""
    order = rng.permutation(len(y)) if split == "chance" else np.argsort(y, kind="stable")
    client = np.empty(len(y), int)
    client[order] = np.arange(len(y)) * n // len(y)
    return client


def start(x: np.ndarray, rng: np.random.Generator, k: int = 10) -> Params:
    """Equal weights, random rows as means, the covariance of all rows."""
    covs = pack_covs(np.tile(np.cov(x.T), (k, 1, 1)), "full")
    return Params(np.full(k, 1 / k), x[rng.choice(len(x), k, replace=False)], covs)
