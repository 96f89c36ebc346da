"""Kinds of novelty that no reported figure uses, for choices made on training images alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import ndimage

from unpooled.datasets import shared

Change = Callable[[np.ndarray], np.ndarray]


def strange(x: np.ndarray) -> dict[str, np.ndarray]:
    """Images (m, 28, 28) made novel, and others that were never digits."""
    noise = np.random.default_rng(0).normal(0, 25, x.shape)
    emnist = shared.emnist()
    return {
        "turned by 45": _ink(x, lambda a: ndimage.rotate(a, 45, reshape=False, order=1)),
        "three quarters": _ink(x, _drawn([[0.75, 0], [0, 0.75]])),
        "off centre": _ink(x, lambda a: ndimage.shift(a, 5, order=0)),
        "blurred": _ink(x, lambda a: ndimage.gaussian_filter(a, 1.2)),
        "noisy": _bytes(x + noise),
        "letters": emnist.x[np.flatnonzero(emnist.y >= 10)[: len(x)]],
        "clothes": shared.fashion_mnist().x_train[: len(x)],
    }


def stranger(x: np.ndarray) -> dict[str, np.ndarray]:
    """Images (m, 28, 28) made novel in other ways."""
    return {
        "six tenths": _ink(x, _drawn([[0.6, 0], [0, 0.6]])),
        "flat": _ink(x, _drawn([[0.55, 0], [0, 1]])),
        "sheared": _ink(x, _drawn([[1, 0], [0.7, 1]])),
        "turned by 70": _ink(x, lambda a: ndimage.rotate(a, 70, reshape=False, order=1)),
        "thin": _ink(x, lambda a: np.sign(a.sum()) * ndimage.grey_erosion(np.abs(a), 3)),
    }


def _ink(x: np.ndarray, how: Change) -> np.ndarray:
    """Images whose digit is changed: what is left when each one's paper, white or black, is taken away."""
    paper = np.where(x[:, :1, :1] > 127, 255.0, 0.0)
    return _bytes(np.stack([how(ink) for ink in x - paper]) + paper)


def _drawn(matrix: list[list[float]]) -> Change:
    """A linear map of the plane about the centre of the image."""
    back, middle = np.linalg.inv(matrix), np.full(2, 13.5)
    return lambda a: ndimage.affine_transform(a, back, middle - back @ middle, order=1)


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.clip(0, 255).astype(np.uint8)
