"""Pictures of regressions with their uncertainty: calibration curves, bands around predictions, error against rounds.

Every function draws into the matplotlib axes it is given and returns them; matplotlib is not imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpooled.metrics.regression import Calibration


def calibration_curve(ax: Any, curves: Mapping[str, Calibration]) -> Any:
    """Coverage of intervals against their nominal level; calibrated ones lie on the diagonal."""
    ax.plot([0, 1], [0, 1], "--", color="grey", linewidth=1)
    for label, seen in curves.items():
        ax.plot(seen.levels, seen.covered, "o-", markersize=3, label=f"{label}: ECE {seen.ece:.3f}, MCE {seen.mce:.3f}")
    ax.set(xlabel="promised", ylabel="covered", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(fontsize="small")
    return ax


def band(
    ax: Any, model: Any, x: np.ndarray, coverage: float = 0.95, rows: tuple | None = None, truth: Any = None
) -> Any:
    """The prediction along one variable with its interval; `rows` are (x, y) to show, `truth` a function of x."""
    x = np.sort(np.asarray(x, dtype=np.float64))
    lower, upper = model.interval(x[:, None], coverage)
    ax.fill_between(x, lower, upper, color="tab:red", alpha=0.2, linewidth=0, label=f"{coverage:.0%} interval")
    ax.plot(x, model.predict(x[:, None]), color="tab:green", label="prediction")
    if truth is not None:
        ax.plot(x, truth(x), color="tab:blue", label="truth")
    if rows is not None:
        ax.plot(rows[0], rows[1], ".", color="tab:blue", markersize=3, label="rows")
    ax.legend(fontsize="small")
    return ax


def error_by_sums(ax: Any, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], unit: str = "RMSE") -> Any:
    """Error against the number of SUMs, which is what a fit over a network costs."""
    for label, (sums, errors) in curves.items():
        ax.plot(sums, errors, label=label)
    ax.set(xlabel="SUMs", ylabel=unit, yscale="log")
    ax.legend(fontsize="small")
    return ax
