"""Pictures of statistics as SVG text: survival curves with their intervals, intervals of coefficients, histograms,
variances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from unpooled.report.svg import AXIS, BOTTOM, HEIGHT, LEFT, PALETTE, RIGHT, TOP, WIDTH, _figure, axes, short

STEP = 24  # height of a line in a picture of intervals
MOST = 40  # coefficients or histograms shown
MOST_TICKS = 5  # numbers along an axis
SMALL = (146.0, 70.0)  # width and height of one histogram


def curves(times: Sequence[float] | np.ndarray, groups: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> str:
    """Survival curves (curve, lower, upper) by group as steps over time, each with its interval."""
    at = np.concatenate([[0.0], np.asarray(times, dtype=float)])
    body = axes([0.0, at[-1] or 1.0], [0.0, 1.0], "time", "alive")
    for k, (name, (curve, lower, upper)) in enumerate(groups.items()):
        colour = PALETTE[k % len(PALETTE)]
        band = _steps(at, lower) + _steps(at, upper)[::-1]
        body += f'<polygon points="{_points(band)}" fill="{colour}" opacity="0.15"/>'
        body += f'<polyline points="{_points(_steps(at, curve))}" fill="none" stroke="{colour}" stroke-width="2"/>'
        y = TOP + 12 + 15 * k
        entry = f'<rect x="{WIDTH - RIGHT - 12}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        entry += f'<text x="{WIDTH - RIGHT - 17}" y="{y}" text-anchor="end">{escape(short(name, 24))}</text>'
        body += entry if len(groups) > 1 else ""
    return _figure(HEIGHT, body)


def _steps(at: np.ndarray, curve: np.ndarray) -> list[tuple[float, float]]:
    """The corners of a curve that is 1 at first and keeps each value until the next time."""
    values = np.concatenate([[1.0], curve])
    x = LEFT + at / (at[-1] or 1.0) * (WIDTH - RIGHT - LEFT)
    y = HEIGHT - BOTTOM - values * (HEIGHT - BOTTOM - TOP)
    corners = [(x[0], y[0])]
    for i in range(1, len(x)):
        corners += [(x[i], y[i - 1]), (x[i], y[i])]
    return corners


def _points(corners: list[tuple[float, float]]) -> str:
    """Corners as SVG writes them."""
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)


def intervals(names: Sequence[str], middle: np.ndarray, ends: np.ndarray) -> str:
    """A point and its interval (n, 2) for each name, a line at 0, and an axis with round numbers."""
    left = 150
    ends = np.asarray(ends)[:MOST]
    middle = np.asarray(middle)[:MOST]
    low = min(0.0, float(ends.min()))
    high = max(0.0, float(ends.max()))

    def place(value: float) -> float:
        """The x coordinate of a value."""
        return left + (value - low) / ((high - low) or 1.0) * (WIDTH - RIGHT - left)

    body = f'<path d="M{place(0.0):.1f},0V{STEP * len(middle)}" stroke="{AXIS}"/>'
    for i, (name, at, (a, b)) in enumerate(zip(names, middle, ends)):
        y = STEP * i + STEP / 2
        body += f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(short(name, 19))}</text>'
        body += f'<path d="M{place(a):.1f},{y}H{place(b):.1f}" stroke="{PALETTE[0]}" stroke-width="2"/>'
        body += f'<circle cx="{place(at):.1f}" cy="{y}" r="4" fill="{PALETTE[0]}"/>'
    base = STEP * len(middle) + 2
    body += f'<path d="M{left},{base}H{WIDTH - RIGHT}" stroke="{AXIS}"/>'
    for value in _round_numbers(low, high):
        at = min(max(place(value), left + 8), WIDTH - RIGHT - 8)
        body += f'<path d="M{place(value):.1f},{base}v4" stroke="{AXIS}"/>'
        body += f'<text x="{at:.1f}" y="{base + 17}" text-anchor="middle">{value:g}</text>'
    return _figure(base + 22, body)


def _round_numbers(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two ends, at most MOST_TICKS."""
    span = (high - low) or 1.0
    power = 10.0 ** np.floor(np.log10(span / MOST_TICKS))
    step = next(power * m for m in (1, 2, 5, 10, 20) if span / (power * m) < MOST_TICKS)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(f"{k * step:.6g}") for k in range(first, last + 1)]


def histograms(tables: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Small histograms side by side; a bin that is withheld is left out."""
    width, height = SMALL
    across = int(WIDTH // width)
    body = ""
    for k, (name, table) in enumerate(list(tables.items())[:MOST]):
        left = (k % across) * width + 5
        top = (k // across) * (height + 30) + 5
        rows = np.nan_to_num(table["rows"])
        tall = rows / (rows.max() or 1.0) * height
        wide = (width - 10) / len(rows)
        for i, h in enumerate(tall):
            size = f'width="{wide - 0.5:.1f}" height="{h:.1f}"'
            body += f'<rect x="{left + i * wide:.1f}" y="{top + height - h:.1f}" {size} fill="{PALETTE[0]}"/>'
        body += f'<text x="{left + width / 2 - 5:.1f}" y="{top + height + 14}" text-anchor="middle">{escape(short(name, 20))}</text>'
    lines = -(-min(len(tables), MOST) // across)
    return _figure(lines * (height + 30) + 5, body)
