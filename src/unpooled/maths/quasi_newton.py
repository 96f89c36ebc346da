"""L-BFGS: steps from a gradient, the last steps, and the changes of the gradient that these brought. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MEMORY = 20  # steps that are kept
SUFFICIENT = 1e-4  # share of the gain predicted by the gradient that a step must bring
FLAT = 1e-12  # of a step and its change of the gradient: cosine below which they are not kept
SHORTEST, LONGEST = 0.1, 0.5  # of a step that was too long


def remembered(
    steps: np.ndarray, changes: np.ndarray, step: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # (m, q) each
    """The steps and changes of the gradient that are kept after one more; it is left out where the objective has no curvature along it."""
    if step @ change <= FLAT * np.sqrt((step @ step) * (change @ change)):
        return steps, changes
    return np.vstack([steps, step])[-MEMORY:], np.vstack([changes, change])[-MEMORY:]


def next_step(
    gradient: np.ndarray, steps: np.ndarray, changes: np.ndarray, precondition: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:  # (q,)
    """The step downhill, by the two loops of Nocedal (1980) around `precondition`; `gradient` is of minus the objective."""
    q, kept = gradient.copy(), []
    for s, y in zip(steps[::-1], changes[::-1]):
        rho = 1 / (s @ y)
        alpha = rho * (s @ q)
        q -= alpha * y
        kept.append((rho, alpha, s, y))
    r = precondition(q)
    for rho, alpha, s, y in kept[::-1]:
        r += (alpha - rho * (y @ r)) * s
    return r


def shortened(slope: float, rise: float) -> float:
    """The fraction of a step that was too long at which a parabola has its minimum, between 0.1 and 0.5.

    `slope` is how much the objective should have fallen by its gradient alone, `rise` how much higher than that it is now.
    """
    return float(np.clip(0.5 * slope / rise, SHORTEST, LONGEST)) if np.isfinite(rise) and rise > 0 else SHORTEST
