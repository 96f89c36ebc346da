"""Where EM starts, and which start it goes on with: several for every number of components, side by side for a few rounds.

Nothing is sent. Components start at the shared model, moved along the directions in which sites differ. The first start lies evenly
about it, the others are drawn at random (the same in every run). A few rounds of EM over all rows tell the likeliest start of each
number of components; the fits without each fold begin there too, about their own shared models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.models.pooling.mixtures import Components, Personal, blocks

STARTS = 6  # of every number of components
ROUNDS = 5  # of EM that tell the likeliest start
SEED = 20  # of the directions that are drawn


def repeated(sizes: Sequence[int]) -> list[int]:
    """The number of components of every start: the starts of one number follow each other."""
    return [k for k in sizes for _ in range(STARTS)]


def begin(
    coef: np.ndarray, scale: np.ndarray, scatter: np.ndarray, information: np.ndarray, sizes: Sequence[int], far: float
) -> Components:
    """Components about the shared one, along the directions in which sites differ most, in every start of every size.

    coef (v, q), scale (v,), scatter (v, q, q) whitened and per row, information (v, q, q) per row.
    """
    v, q = coef.shape
    axes = np.stack([_axes(scatter[i], information[i]) for i in range(v)])  # (v, q, q)
    corners = np.concatenate([_corners(k, q, start) for k in sizes for start in range(STARTS)])  # (g, q)
    centres = coef[:, None] + far * corners @ axes  # (v, g, q)
    scales = np.repeat(scale[:, None], len(corners), 1)
    shares = np.concatenate([np.full(k, 1 / k) for k in repeated(sizes)])
    return Components(centres, scales, np.tile(shares, (v, 1)))


def _axes(scatter: np.ndarray, information: np.ndarray) -> np.ndarray:
    """(q, q) the directions in which sites differ, the largest first, each as long as they differ."""
    values, vectors = np.linalg.eigh(scatter)
    lower = np.linalg.cholesky(information + 1e-9 * np.eye(len(scatter)))
    length = np.sqrt(np.maximum(values[::-1], 1e-4))
    return np.linalg.solve(lower.T, vectors[:, ::-1] * length).T


def _corners(k: int, q: int, start: int) -> np.ndarray:
    """(k, q) k points about 0: two along the first axis or more on a circle in the first two, then random ones."""
    if start > 0:
        return np.random.default_rng([SEED, k, start]).normal(size=(k, q))
    corners = np.zeros((k, q))
    if k == 2 or q == 1:
        corners[:, 0] = np.linspace(1, -1, k)
        return corners
    angle = 2 * np.pi * np.arange(k) / k
    corners[:, 0], corners[:, 1] = 1.4 * np.cos(angle), 1.4 * np.sin(angle)
    return corners


def likeliest(components: Components, loglik: np.ndarray, sizes: Sequence[int]) -> Components:
    """The starts of every size that are likeliest after a few rounds; `loglik` (starts of all sizes,) is that of all rows."""
    every = list(blocks(repeated(sizes)))
    best = np.asarray(loglik).reshape(len(sizes), STARTS).argmax(1)
    chosen = [every[c * STARTS + int(start)] for c, start in enumerate(best)]
    index = np.concatenate([np.arange(b.start, b.stop) for b in chosen])
    return Components(*(np.take(a, index, axis=1) for a in components))


def begin_personal(coef: np.ndarray, scale: np.ndarray, moments: np.ndarray, sites: float) -> Personal:
    """The mean at the shared model, and variances between sites by DerSimonian and Laird's moments.

    moments (4, v, q): sums over sites of a, a^2, a b and a b^2, for a = 1 / var and b = own - shared.
    """
    a, a2, ab, ab2 = moments
    spread = ab2 - ab**2 / a
    over = (spread - (sites - 1)) / np.maximum(a - a2 / a, 1e-12)
    return Personal(coef, np.maximum(over, 1e-3), scale)
