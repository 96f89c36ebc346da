"""A fitted model's coefficients as a table of text, and as a table with pictures for reports. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from unpooled.report.page import table as html_table

WIDTH, HEIGHT = 220, 16  # of the picture of one interval


def table(
    title: str, head: Mapping[str, str], names: Sequence[str], rows: np.ndarray, coverage: float, statistic: str
) -> str:
    """Facts about the fit, then one line for each coefficient: estimate, standard error, z or t, p and confidence limits."""
    width = max(len(key) for key in head)
    facts = [f"{key:<{width}}  {value}" for key, value in head.items()]
    first = max(11, *(len(name) for name in names))
    low = f"{50 * (1 - coverage):.4g} %"
    high = f"{50 * (1 + coverage):.4g} %"
    titles = ("estimate", "std. error", statistic, "p", low, high)
    line = f"{'':<{first}}" + "".join(f"{t:>13}" for t in titles)
    body = [f"{name:<{first}}" + _numbers(*row) for name, row in zip(names, rows)]
    return "\n".join([title, *facts, "", line, "-" * len(line), *body])


def _numbers(estimate: float, error: float, p: float, low: float, high: float) -> str:
    """One line of the table: estimate, error, z, p and interval."""
    z = _in_errors(estimate, error)
    return f"{estimate:>13.6g}{error:>13.4g}{z:>13.2f}{p:>13.3g}{low:>13.6g}{high:>13.6g}"


def _in_errors(estimate: Any, error: Any) -> Any:
    """Estimates in units of their standard errors; inf or NaN where targets are met exactly and the errors are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return estimate / error


def figure(names: Sequence[str], rows: np.ndarray) -> str:
    """The same as HTML, each coefficient with a picture of its interval in units of its standard error."""
    estimate, error, p, low, high = rows.T
    z = _in_errors(estimate, error)
    ends = _in_errors(rows[:, 3:], error[:, None])
    reach = max(3.0, float(np.nanmax(np.abs(z), initial=0.0)) + 2.0)
    cells = (
        (
            escape(name),
            *(f"{v:.4g}" for v in (estimate[i], error[i], p[i], low[i], high[i])),
            _interval(z[i], ends[i, 0], ends[i, 1], reach),
        )
        for i, name in enumerate(names)
    )
    head = ("", "estimate", "std. error", "p", "from", "to", "in standard errors, 0 in the middle")
    return html_table(head, cells, numbers={1, 2, 3, 4, 5})


def _interval(z: float, low: float, high: float, reach: float) -> str:
    """A dot at z on a line from low to high, on an axis from -reach to reach."""
    if not np.isfinite(z):
        return ""

    def place(value: float) -> float:
        """The x coordinate of a value."""
        return WIDTH * (0.5 + 0.5 * value / reach)

    left = place(low)
    right = place(high)
    middle = f'<line x1="{WIDTH / 2}" y1="0" x2="{WIDTH / 2}" y2="{HEIGHT}" stroke="#bbb"/>'
    bar = f'<line x1="{left:.1f}" y1="{HEIGHT / 2}" x2="{right:.1f}" y2="{HEIGHT / 2}" stroke="#3b6fb6" stroke-width="2"/>'
    dot = f'<circle cx="{place(z):.1f}" cy="{HEIGHT / 2}" r="3.5" fill="#3b6fb6"/>'
    return f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{middle}{bar}{dot}</svg>'
