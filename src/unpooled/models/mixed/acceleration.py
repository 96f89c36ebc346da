"""Accelerated EM for mixed mixtures: Anderson's extrapolation of the last rounds, taken back if the objective falls.

A round asks about one mixture, as plain EM does. From the last few mixtures and EM's images of them the next one is extrapolated by least
squares; where its objective comes out lower than the best before, the fit goes on from EM's image of that one instead, so that the
objective of accepted mixtures never falls. It has converged when a plain step of EM gains less than the tolerance.

References
----------
Henderson and Varadhan, Damped Anderson acceleration with restarts and monotonicity control for accelerating EM and EM-like
algorithms, JCGS 2019.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.coordinates import from_vector, to_vector
from unpooled.models.mixed.messages import Params
from unpooled.tree import message

MEMORY = 8  # rounds that are looked back on
RIDGE = 1e-8  # of the least squares, as a share of its trace
LONGEST_STEP = 10.0  # times EM's own step: a longer one is shortened
NOISE = 1e-12  # of an objective: a smaller fall is rounding


@message("mixed.Memory")
class Memory(NamedTuple):
    """What is carried from round to round."""

    best: Params  # the last accepted
    image: Params  # EM's image of it
    objective: float  # per row, of the last accepted
    plain: bool  # whether the mixture asked about is EM's image of the last accepted, or the start
    points: np.ndarray  # (m, p), accepted mixtures, oldest first
    images: np.ndarray  # (m, p), EM's images of them
    converged: bool


def begin(params: Params) -> Memory:
    """The memory before the first round."""
    none = np.zeros((0, 0))
    return Memory(params, params, -np.inf, True, none, none, False)


def advance(
    memory: Memory,
    asked: Params,
    image: Params,
    objective: float,
    scale: np.ndarray,
    columns: Columns,
    shape: str,
    tol: float,
) -> tuple[Memory, Params]:
    """The memory after an answer about `asked`, whose image under EM is `image`; and what to ask about next."""
    gain = objective - memory.objective
    if not memory.plain and not gain >= -NOISE * (1 + abs(objective)):
        return memory._replace(plain=True, points=memory.points[:0], images=memory.images[:0]), memory.image
    memory = _remember(memory, asked, image, objective, scale, shape)
    if memory.plain and abs(gain) < tol:
        return memory._replace(converged=True), image
    if abs(gain) < tol or len(memory.points) < 2:
        return memory._replace(plain=True), image
    extrapolated = _extrapolate(memory.points, memory.images)
    return memory._replace(plain=False), from_vector(extrapolated, image, scale, columns, shape)


def _remember(memory: Memory, asked: Params, image: Params, objective: float, scale: np.ndarray, shape: str) -> Memory:
    """The memory with one more pair of a point and its image under EM."""
    at = to_vector(asked, scale, shape)
    to = to_vector(image, scale, shape)
    points = np.vstack([memory.points.reshape(-1, len(at)), at])[-MEMORY:]
    images = np.vstack([memory.images.reshape(-1, len(at)), to])[-MEMORY:]
    return memory._replace(best=asked, image=image, objective=objective, points=points, images=images)


def _extrapolate(points: np.ndarray, images: np.ndarray) -> np.ndarray:
    """The combination of images whose steps cancel best, not too far from the last one."""
    steps = images - points  # (m, p)
    last = steps[-1]
    changes = np.diff(steps, axis=0)
    gram = changes @ changes.T
    ridge = RIDGE * np.trace(gram) * np.eye(len(gram))
    shares = np.linalg.solve(gram + ridge + 1e-300 * np.eye(len(gram)), changes @ last)
    move = -shares @ np.diff(images, axis=0)
    longest = LONGEST_STEP * float(np.linalg.norm(last))
    length = float(np.linalg.norm(move))
    return images[-1] + move * min(1.0, longest / max(length, 1e-300))
