"""Time several callables by turns in one process, so that they share whatever else the machine is doing.

CPU seconds are of the whole process, all its threads together; on a machine that others use too they say more than the
clock on the wall. A ratio is taken within each turn; its median and its range over the turns are what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Seconds(NamedTuple):
    """One entry a turn."""

    cpu: np.ndarray
    wall: np.ndarray


class Ratio(NamedTuple):
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def alternate(work: dict[str, Callable[[], Any]], turns: int = 7, warm: int = 1) -> dict[str, Seconds]:
    """Seconds of each callable, run by turns; the order turns round every time, and the first `warm` are not counted."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    names = list(work)
    for turn in range(-warm, turns):
        for name in names if turn % 2 else reversed(names):
            cpu, wall = time.process_time(), time.perf_counter()
            work[name]()
            spent = time.process_time() - cpu, time.perf_counter() - wall
            if turn >= 0:
                seen[name].append(spent)
    return {name: Seconds(*np.array(spent).T) for name, spent in seen.items()}


def ratio(over: np.ndarray, under: np.ndarray) -> Ratio:
    """How many times `over` is of `under`, turn by turn."""
    each = over / under
    return Ratio(float(np.median(each)), float(each.min()), float(each.max()))


def compare(seconds: dict[str, Seconds], peer: str, ours: str) -> dict[str, Ratio]:
    """How many times the peer costs what ours costs, by CPU and by wall."""
    return {clock: ratio(getattr(seconds[peer], clock), getattr(seconds[ours], clock)) for clock in Seconds._fields}


def faster(seconds: dict[str, Seconds], names: list[str], clock: str) -> str:
    """Which of `names` costs least at the median."""
    return min(names, key=lambda name: float(np.median(getattr(seconds[name], clock))))
