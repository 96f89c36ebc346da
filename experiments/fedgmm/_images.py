"""Images that differ between clients: FedGMM's shift of inputs and labels, and its novel samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Shifted(NamedTuple):
    """Images of which a part was transformed and relabelled, with the truth."""

    x: np.ndarray  # (n, side, side[, 3])
    y: np.ndarray  # (n,)
    moved: np.ndarray  # (n,) bool: which images
    permutation: np.ndarray  # (classes,): old class to new class, of those


def turn(x: np.ndarray) -> np.ndarray:
    """Images (n, side, side[, 3]) rotated by 90 degrees, mirrored and inverted; the range of values is kept."""
    top = 255 if x.dtype == np.uint8 else 1
    return (top - np.flip(np.rot90(x, axes=(1, 2)), axis=2)).astype(x.dtype)


def shift(x: np.ndarray, y: np.ndarray, share: float = 0.5, random_state: Any = None) -> Shifted:
    """Section 4.1: a random part of the images is rotated, mirrored, inverted and relabelled."""
    rng = np.random.default_rng(random_state)
    moved = rng.permutation(len(x)) < round(share * len(x))
    permutation = rng.permutation(int(y.max()) + 1)
    x, y = x.copy(), y.astype(np.int64)
    x[moved], y[moved] = turn(x[moved]), permutation[y[moved]]
    return Shifted(x, y, moved, permutation)


def shift_by_halves(x: np.ndarray, y: np.ndarray, random_state: Any = None) -> Shifted:
    """Appendix C.3: a quarter of the images is rotated, mirrored and inverted, another quarter relabelled."""
    rng = np.random.default_rng(random_state)
    place = rng.permutation(len(x)) * 4 // len(x)
    permutation = rng.permutation(int(y.max()) + 1)
    x, y = x.copy(), y.astype(np.int64)
    x[place == 0] = turn(x[place == 0])
    y[place == 1] = permutation[y[place == 1]]
    return Shifted(x, y, place < 2, permutation)


def novel(x: np.ndarray, scale: float = 0.5) -> np.ndarray:
    """Novel images: shrunk about the centre, rotated by 90 degrees and mirrored, (n, side, side[, 3])."""
    side = x.shape[1]
    small = round(side * scale)
    edges = (side - small) // 2
    places = np.minimum(((np.arange(small) + 0.5) / scale).astype(int), side - 1)
    out = np.zeros_like(x)
    out[:, edges : edges + small, edges : edges + small] = x[:, places][:, :, places]
    return np.ascontiguousarray(np.flip(np.rot90(out, axes=(1, 2)), axis=2))


def as_rows(x: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """(n, side, side[, 3]) bytes as rows between 0 and 1; in colour one channel after the other."""
    x = np.moveaxis(x, -1, 1) if x.ndim == 4 else x
    return (x.reshape(len(x), -1) / 255).astype(dtype)
