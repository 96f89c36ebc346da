"""How an answer changes when missing values are off by so many standard deviations: the delta adjustment. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

DELTAS = np.arange(-3.0, 3.01, 0.25)


class Sensitivity(NamedTuple):
    """An answer for every delta, and where it changes.

    Attributes
    ----------
    deltas : ndarray of shape (m,)
        By how many of its standard deviations every missing value was moved.
    answers : ndarray of shape (m,)
        The answer for each.
    tipping : float
        The delta nearest to 0 at which the answer crosses the threshold, between two of the deltas by a straight line; NaN if none.
    """

    deltas: np.ndarray
    answers: np.ndarray
    tipping: float


def shifted_answers(answer: Callable[[float], float], threshold: float, deltas: Sequence[float] | None) -> Sensitivity:
    """The answer for each delta, and the delta nearest to 0 at which it crosses the threshold."""
    tried = np.unique(np.append(np.asarray(DELTAS if deltas is None else deltas, dtype=np.float64), 0.0))
    answers = np.array([float(answer(delta)) for delta in tried])
    return Sensitivity(tried, answers, tipping_point(tried, answers - threshold))


def tipping_point(deltas: np.ndarray, off: np.ndarray) -> float:
    """The delta nearest to 0 at which `off` changes its sign; NaN if it never does.

    >>> tipping_point(np.array([-1.0, 0.0, 1.0]), np.array([3.0, 1.0, -1.0]))
    0.5
    """
    crossed = np.flatnonzero(np.sign(off[:-1]) != np.sign(off[1:]))
    if not len(crossed):
        return float("nan")
    steps = off[crossed] - off[crossed + 1]
    at = deltas[crossed] + (deltas[crossed + 1] - deltas[crossed]) * off[crossed] / steps
    return float(at[np.argmin(np.abs(at))])
