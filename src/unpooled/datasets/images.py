"""Images that differ from site to site: FedGMM's shift of inputs and labels, and its novel samples. Nothing is sent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Shifted(NamedTuple):
    """Images of which a part was turned and relabelled, and the truth about it."""

    x: np.ndarray  # (n, side, side)
    y: np.ndarray  # (n,)
    moved: np.ndarray  # (n,) bool: which images
    permutation: np.ndarray  # (classes,): old class to new class, of those


def turn(x: np.ndarray) -> np.ndarray:
    """Images (n, side, side) turned by 90 degrees, mirrored and inverted; values keep their range 0 to the largest."""
    top = 255 if x.dtype == np.uint8 else 1
    return (top - np.flip(np.rot90(x, axes=(1, 2)), axis=2)).astype(x.dtype)


def shift(x: np.ndarray, y: np.ndarray, share: float = 0.5, random_state: Any = None) -> Shifted:
    """Section 4.1: a random part of the images is turned, mirrored and inverted, and its labels go through one permutation."""
    rng = np.random.default_rng(random_state)
    moved = rng.permutation(len(x)) < round(share * len(x))
    permutation = rng.permutation(int(y.max()) + 1)
    x, y = x.copy(), y.astype(np.int64)
    x[moved], y[moved] = turn(x[moved]), permutation[y[moved]]
    return Shifted(x, y, moved, permutation)


def shift_by_halves(x: np.ndarray, y: np.ndarray, random_state: Any = None) -> Shifted:
    """Appendix C.3: a quarter of the images is turned, mirrored and inverted, another quarter relabelled; half is as it was."""
    rng = np.random.default_rng(random_state)
    place = rng.permutation(len(x)) * 4 // len(x)
    permutation = rng.permutation(int(y.max()) + 1)
    x, y = x.copy(), y.astype(np.int64)
    x[place == 0] = turn(x[place == 0])
    y[place == 1] = permutation[y[place == 1]]
    return Shifted(x, y, place < 2, permutation)


def novel(x: np.ndarray, scale: float = 0.5) -> np.ndarray:
    """Images that no client has seen: shrunk about the centre, turned by 90 degrees and mirrored, (n, side, side)."""
    side = x.shape[-1]
    small = round(side * scale)
    edges = (side - small) // 2
    places = np.minimum(((np.arange(small) + 0.5) / scale).astype(int), side - 1)
    out = np.zeros_like(x)
    out[:, edges : edges + small, edges : edges + small] = x[:, places][:, :, places]
    return np.ascontiguousarray(np.flip(np.rot90(out, axes=(1, 2)), axis=2))


def as_rows(x: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """(n, side, side) bytes as rows (n, side * side) between 0 and 1."""
    return (x.reshape(len(x), -1) / 255).astype(dtype)
