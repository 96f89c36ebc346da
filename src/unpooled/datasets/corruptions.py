"""Corruptions of images and tables with severity 1 to 5, for feature skew between clients. Nothing is sent.

Images are (n, side, side), or (n, side, side, 3) in colour, between 0 and 1. Strengths follow the common benchmark of
corrupted images where it has the same corruption. In colour each channel is corrupted by itself, but shift, rotation
and fog are the same in all channels. Every corruption takes x, s = severity - 1 and a random generator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import ndimage

from unpooled.errors import BadParameter, suggest

Corruption = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


def corrupt(x: np.ndarray, name: str, severity: int, rng: np.random.Generator) -> np.ndarray:
    """Images (n, side, side[, 3]) between 0 and 1, or rows (n, d) of a table, corrupted with a severity of 1 to 5."""
    known = IMAGES if x.ndim > 2 else TABLES
    if name not in known:
        raise BadParameter(f"there is no corruption {name!r} of {_kind(x)}: {suggest(name, known)}")
    if severity not in range(1, 6):
        raise BadParameter(f"severity={severity!r} should be 1, 2, 3, 4 or 5")
    return _in_colour(known[name], x, severity - 1, rng) if x.ndim == 4 else known[name](x, severity - 1, rng)


def _in_colour(corruption: Corruption, x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Corrupt each channel; fog, shift and rotation draw the same random numbers for all channels."""
    seed = int(rng.integers(2**62))
    same_for_all = corruption in (fog, shift, rotate)
    channels = []
    for c in range(x.shape[-1]):
        channel_rng = np.random.default_rng([seed, 0 if same_for_all else c])
        channels.append(corruption(x[..., c], s, channel_rng))
    return np.stack(channels, axis=-1)


def names(x: np.ndarray) -> list[str]:
    """The corruptions that fit `x`."""
    return list(IMAGES if x.ndim > 2 else TABLES)


def _kind(x: np.ndarray) -> str:
    """Whether rows are images or tables."""
    return "images" if x.ndim > 2 else "tables"


# ---- images ----


def gaussian_noise(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Add independent normal noise to every pixel."""
    return _unit(x + rng.normal(scale=(0.08, 0.12, 0.18, 0.26, 0.38)[s], size=x.shape))


def shot_noise(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Poisson noise, as in a photograph in weak light."""
    photons = (60, 25, 12, 5, 3)[s]
    return _unit(rng.poisson(x * photons) / photons)


def impulse_noise(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Set random pixels to 0 or 1 (salt and pepper)."""
    hit = rng.random(x.shape) < (0.03, 0.06, 0.09, 0.17, 0.27)[s]
    return np.where(hit, rng.integers(2, size=x.shape), x)


def blur(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """A Gaussian blur within each image."""
    sigma = (0.4, 0.6, 0.8, 1.1, 1.5)[s]
    return ndimage.gaussian_filter(x, (0, sigma, sigma))


def motion_blur(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Blur along the rows of each image."""
    return ndimage.uniform_filter1d(x, (2, 3, 4, 5, 7)[s], axis=2)


def brightness(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Make images brighter."""
    return _unit(x + (0.1, 0.2, 0.3, 0.4, 0.5)[s])


def contrast(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Draw pixels towards the image's mean."""
    mean = x.mean((1, 2), keepdims=True)
    return mean + (x - mean) * (0.75, 0.5, 0.4, 0.3, 0.15)[s]


def fog(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Blend each image with a smooth random cloud."""
    cloud = ndimage.gaussian_filter(rng.random(x.shape), (0, 4, 4), mode="wrap")
    low = cloud.min((1, 2), keepdims=True)
    high = cloud.max((1, 2), keepdims=True)
    thick = (0.2, 0.35, 0.5, 0.65, 0.8)[s]
    return (x + thick * (cloud - low) / (high - low)) / (1 + thick)


def pixelate(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Replace each block of pixels by its mean."""
    side = x.shape[-1]
    few = max(2, round(side * (0.8, 0.65, 0.5, 0.4, 0.3)[s]))
    block = np.arange(side) * few // side  # (side,) block of each row, and of each column, of pixels
    to_block = (block == np.arange(few)[:, None]) / np.bincount(block, minlength=few)[:, None]  # (few, side)
    return (to_block @ x @ to_block.T)[:, block][:, :, block]


def shift(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Move all images in one random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    direction = np.array([np.sin(angle), np.cos(angle)])
    by = (direction * (1, 2, 2.5, 3, 4)[s]) * x.shape[-1] / 28  # in pixels; the distances are for images of side 28
    return ndimage.shift(x, (0, *by), order=1)


def rotate(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Rotate all images by one angle, left or right at random."""
    angle = rng.choice((-1, 1)) * (5, 10, 15, 20, 30)[s]
    return _unit(ndimage.rotate(x, angle, axes=(1, 2), reshape=False, order=1))


IMAGES: dict[str, Corruption] = {
    f.__name__: f
    for f in (
        gaussian_noise, shot_noise, impulse_noise, blur, motion_blur, brightness, contrast, fog, pixelate, shift, rotate,
    )
}  # fmt: skip


# ---- tables: everything in units of each column's standard deviation ----


def noise(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Add normal noise in proportion to each column's spread."""
    return x + rng.normal(size=x.shape) * x.std(0) * (0.1, 0.2, 0.35, 0.5, 0.75)[s]


def offset(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Shift each column by a constant, as a biased instrument does."""
    return x + rng.choice((-1, 1), size=x.shape[1]) * x.std(0) * (0.1, 0.2, 0.35, 0.5, 0.75)[s]


def scale(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Scale each column about its mean, as an instrument with another gain does."""
    gain = 1 + rng.choice((-1, 1), size=x.shape[1]) * (0.05, 0.1, 0.2, 0.3, 0.4)[s]
    return x.mean(0) + (x - x.mean(0)) * gain


def coarse(x: np.ndarray, s: int, rng: np.random.Generator) -> np.ndarray:
    """Round to a coarse grid."""
    step = np.where(x.std(0) > 0, x.std(0), 1.0) * (0.25, 0.5, 0.75, 1.0, 1.5)[s]
    return np.round(x / step) * step


TABLES: dict[str, Corruption] = {f.__name__: f for f in (noise, offset, scale, coarse)}


def _unit(x: np.ndarray) -> np.ndarray:
    """Values clipped to [0, 1]."""
    return x.clip(0, 1)
