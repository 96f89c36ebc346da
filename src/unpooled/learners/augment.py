"""Random crops and flips of images at a client, seeded. Nothing is sent.

Every image of a minibatch is moved by up to `PADDING` pixels in either direction, pixels from outside being 0, and with probability
1/2 mirrored. The draws come from each client's own generator, so that a client sees the same images alone, stacked with others or
on another engine, on a CPU as on a GPU. Rows are images as `nets` reads them: one channel after the other, flat.
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from unpooled.arrays import Array, is_torch, namespace
from unpooled.client import Client
from unpooled.errors import BadParameter

KINDS = ("none", "crop-flip")
PADDING = 4  # pixels, the usual number for images of 32 x 32


def image_shape(inputs: int) -> tuple[int, int, int]:
    """(channels, side, side) of a flat row: one channel if its length is a square, three if a third of it is."""
    for channels in (1, 3):
        side = isqrt(inputs // channels)
        if channels * side * side == inputs:
            return channels, side, side
    raise BadParameter(
        f"rows of {inputs} numbers are not square images of one or three channels: choose another learner"
    )


def draw(client: Client, real: np.ndarray) -> np.ndarray:
    """(..., steps, b, 3) moves of the images of each minibatch: down, to the right, and whether mirrored.

    `real` (..., steps, b) is False where a minibatch is padded; each client draws for its own images alone.
    """
    moves = np.zeros((*real.shape, 3), np.int64)
    per_client = zip(moves.reshape(-1, *moves.shape[-3:]), real.reshape(-1, *real.shape[-2:]), client.rngs)
    for own, mask, rng in per_client:
        stream = rng.spawn(1)[0]  # apart from the draws of the order
        own[mask] = stream.integers([-PADDING, -PADDING, 0], [PADDING + 1, PADDING + 1, 2], size=(mask.sum(), 3))
    return moves


def moved(x: Array, moves: Array) -> Array:
    """Images x (..., d) moved and mirrored by `moves` (..., 3)."""
    channels, side, _ = image_shape(x.shape[-1])
    xp = namespace(x)
    places = xp.arange(side, device=x.device) if is_torch(x) else np.arange(side)
    down, right, mirrored = (moves[..., i, None] for i in range(3))
    rows = places - down  # (..., side): where each row comes from
    columns = places - right
    columns = xp.where(mirrored > 0, side - 1 - columns, columns)
    inside = _inside(rows, side)[..., :, None] & _inside(columns, side)[..., None, :]
    source = rows.clip(0, side - 1)[..., :, None] * side + columns.clip(0, side - 1)[..., None, :]
    source, inside = (a.reshape(*x.shape[:-1], 1, side * side) for a in (source, inside))
    pixels = x.reshape(*x.shape[:-1], channels, side * side)
    return (_chosen(pixels, source) * inside).reshape(x.shape)


def _inside(places: Array, side: int) -> Array:
    return (places >= 0) & (places < side)


def _chosen(pixels: Array, source: Array) -> Array:
    """The pixels (..., channels, n) at the places `source` (..., 1, n)."""
    if is_torch(pixels):
        return pixels.gather(-1, source.expand(pixels.shape))
    return np.take_along_axis(pixels, np.broadcast_to(source, pixels.shape), -1)
