"""Newton's method at the server, for several models at a time: a step that raises a loss is halved. Nothing is sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.pooling import small_glm
from unpooled.tree import message

CONVERGED = 1e-9  # the largest step at which all models have converged


@message("pooling.Path")
class Path(NamedTuple):
    """Where several Newton iterations are."""

    at: np.ndarray  # (m, q) where sums are taken next
    base: np.ndarray  # (m, q) the best point so far
    loss: np.ndarray  # (m,) there
    hessian: np.ndarray  # (m, t) there
    moved: float  # the largest change of a coefficient by the last step


def begin(at: np.ndarray) -> Path:
    """The path before the first step."""
    m, q = at.shape
    return Path(at, at, np.full(m, 1e300), np.zeros((m, q * (q + 1) // 2)), 1e300)


def advance(path: Path, loss: np.ndarray, score: np.ndarray, hessian: np.ndarray) -> Path:
    """The path after its points were evaluated: new steps from them, or half of the last one where it was too long."""
    worse = loss > path.loss + 1e-11 * np.abs(path.loss) + 1e-300
    step = small_glm.newton_step(unpack_triangle(hessian), score)
    at = np.where(worse[:, None], 0.5 * (path.at + path.base), path.at + step)
    base = np.where(worse[:, None], path.base, path.at)
    kept = np.where(worse[:, None], path.hessian, hessian)
    moved = float(np.abs(at - path.at).max(initial=0.0))
    return Path(at, base, np.where(worse, path.loss, loss), kept, moved)
