"""Matrices as bytes, for codecs: quantised row by row, so that no bucket spans two rows. Sends nothing.

Format: the byte lengths of all matrices but the last (4 bytes each), then the encoded matrices. Where all matrices are
zero, nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unpooled.layers.compression.quantisers import Dither


def encode(quantiser: Any, blocks: Sequence[np.ndarray], rng: np.random.Generator) -> bytes:
    """The matrices, each (rows, length), as bytes; `decode` gives the quantised matrices back."""
    if not any(block.any() for block in blocks):
        return b""
    parts = [_encode_block(quantiser, block, rng) for block in blocks]
    lengths = np.array([len(part) for part in parts[:-1]], "<u4")
    return lengths.tobytes() + b"".join(part.tobytes() for part in parts)


def decode(
    quantiser: Any, shapes: Sequence[tuple[int, int]], content: bytes, rng: np.random.Generator
) -> list[np.ndarray]:
    """The quantised matrices of these shapes; ValueError for bytes that `encode` never writes."""
    if not content:
        return [np.zeros(shape) for shape in shapes]
    head = 4 * (len(shapes) - 1)
    if len(content) < head:
        raise ValueError("the lengths of its blocks are cut off")
    ends = np.cumsum(np.frombuffer(content[:head], "<u4"))
    parts = np.split(np.frombuffer(content[head:], np.uint8), ends)
    return [_decode_block(quantiser, shape, part, rng) for shape, part in zip(shapes, parts)]


def _encode_block(quantiser: Any, block: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One matrix (rows, length) as uint8 bytes; each row is padded to whole buckets."""
    quantiser, padding = _aligned_to_rows(block.shape[1], quantiser)
    padded = np.pad(block, ((0, 0), (0, padding)))
    return quantiser.encode(padded.ravel(), rng)


def _decode_block(quantiser: Any, shape: tuple[int, int], part: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The matrix of this shape from its bytes, without the padding."""
    rows, length = shape
    quantiser, padding = _aligned_to_rows(length, quantiser)
    numbers = quantiser.decode(part, rows * (length + padding), rng)
    return numbers.reshape(rows, length + padding)[:, :length]


def _aligned_to_rows(length: int, quantiser: Any) -> tuple[Any, int]:
    """(quantiser whose buckets divide a padded row evenly, number of padding columns) for rows of this length."""
    if not isinstance(quantiser, Dither):
        return quantiser, 0
    buckets = max(1, round(length / quantiser.bucket))
    fitting = quantiser._replace(bucket=-(-length // buckets))
    return fitting, -length % fitting.bucket
