"""Small charts as SVG text: a line, stacked bars, a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

import numpy as np

PALETTE = ("#3b6fb6", "#e08a2e", "#4a9d6f", "#c4504f", "#8467b0", "#8a6d5a", "#d081b5", "#6f7782", "#b5ad3d", "#3fa7b8")
WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 78, 14, 12, 40
LEGEND = 12  # entries per line of a legend
GREY = 'fill="#d5d8dd" stroke="#fff" stroke-width="0.5"'


def line(x: Sequence[float], y: Sequence[float], x_label: str, y_label: str) -> str:
    """One curve, with a point for each value when there are few."""
    px, py = _scale(x, LEFT, WIDTH - RIGHT), _scale(y, HEIGHT - BOTTOM, TOP)
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px, py))
    dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in zip(px, py)) if len(px) <= 60 else ""
    curve = f'<polyline points="{path}" fill="none" stroke="{PALETTE[0]}" stroke-width="2"/><g fill="{PALETTE[0]}">{dots}</g>'
    return _figure(HEIGHT, _axes(x, y, x_label, y_label) + curve)


def stacked(names: Sequence[str], shares: np.ndarray, removed: int = 0) -> str:
    """A stacked bar per name, from shares (names, parts) whose rows sum to one; the last `removed` parts are grey."""
    step, left, parts = 22, 140, shares.shape[1]
    fills = [_fill(k) for k in range(parts - removed)] + [GREY] * removed
    entries = [(fills[k], str(k)) for k in range(parts - removed)] + [(GREY, "removed")] * (removed > 0)
    legend = _legend(entries, left, step * len(names) + 22)
    bars = []
    for i, (name, row) in enumerate(zip(names, shares)):
        bars.append(f'<text x="{left - 8}" y="{i * step + 16}" text-anchor="end">{escape(_short(name, 20))}</text>')
        edges = left + (WIDTH - left - RIGHT) * np.concatenate([[0], np.cumsum(row)])
        for fill, (a, b) in zip(fills, pairwise(edges)):
            bars.append(
                f'<rect x="{a:.1f}" y="{i * step + 3}" width="{max(b - a, 0):.1f}" height="{step - 5}" {fill}/>'
            )
    height = step * len(names) + 18 + 16 * (1 + (len(entries) - 1) // LEGEND)
    return _figure(height, "".join(bars) + legend)


def shades(rows: Sequence[str], columns: Sequence[str], values: np.ndarray) -> str:
    """A heat map of shares (rows, columns) between 0 and 1, darker where larger."""
    left, step, room = 140, 22, 40  # room for the end of the last slanted name
    width = min(60.0, (WIDTH - left - RIGHT - room) / max(len(columns), 1))
    slant, top = (-40, 76) if width > 22 else (-90, 118)  # upright names where slanted ones would overlap
    every = max(1, int(np.ceil(12 / width)))
    cells = [
        f'<text transform="translate({left + (j + 0.5) * width:.1f},{top - 6}) rotate({slant})" dy="{4 if slant == -90 else 0}">'
        f"{escape(_short(str(c), 14))}</text>"
        for j, c in enumerate(columns)
        if j % every == 0
    ]
    for i, name in enumerate(rows):
        cells.append(
            f'<text x="{left - 8}" y="{top + i * step + 15}" text-anchor="end">{escape(_short(name, 20))}</text>'
        )
        for j, v in enumerate(values[i]):
            x, y = left + j * width, top + i * step
            size = f'width="{width - 2:.1f}" height="{step - 2}"'
            cells.append(f'<rect x="{x:.1f}" y="{y}" {size} fill="{PALETTE[0]}" opacity="{0.06 + 0.94 * v:.3f}"/>')
            if width > 30:
                ink = "#fff" if v > 0.5 else "#333"
                cells.append(
                    f'<text x="{x + width / 2 - 1:.1f}" y="{y + 15}" text-anchor="middle" fill="{ink}">{v:.0%}</text>'
                )
    return _figure(top + step * len(rows) + 6, "".join(cells))


def _scale(values: Sequence[float], low: float, high: float) -> np.ndarray:
    v = np.asarray(values, dtype=float)
    span = np.ptp(v) or 1.0
    return low + (v - v.min()) / span * (high - low)


def _axes(x: Sequence[float], y: Sequence[float], x_label: str, y_label: str) -> str:
    base, mid = HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2
    frame = f'<path d="M{LEFT},{TOP}V{base}H{WIDTH - RIGHT}" fill="none" stroke="#aaa"/>'
    ticks = "".join(
        f'<text x="{LEFT - 8}" y="{at:.1f}" text-anchor="end" dominant-baseline="middle">{value:.5g}</text>'
        for value, at in ((min(y), base), (max(y), TOP))
    )
    ticks += "".join(
        f'<text x="{at}" y="{base + 16}" text-anchor="middle">{value:.5g}</text>'
        for value, at in ((min(x), LEFT), (max(x), WIDTH - RIGHT - 6))
    )
    names = f'<text x="{mid}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
    names += f'<text transform="translate(14,{HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    return frame + ticks + names


def _legend(entries: Sequence[tuple[str, str]], left: int, y: float) -> str:
    """The colour and name of each part, LEGEND entries per line."""
    places = [(left + k % LEGEND * 40, y + k // LEGEND * 16) for k in range(len(entries))]
    return "".join(
        f'<rect x="{a}" y="{b - 9}" width="10" height="10" {fill}/><text x="{a + 14}" y="{b}">{name}</text>'
        for (fill, name), (a, b) in zip(entries, places)
    )


def _fill(k: int) -> str:
    """The colour of part k: the palette, then two paler versions of it."""
    paler = (1.0, 0.6, 0.3)[k // len(PALETTE) % 3]
    return f'fill="{PALETTE[k % len(PALETTE)]}" fill-opacity="{paler}"'


def _short(name: str, most: int) -> str:
    """A long name without its middle, since names often differ at their end."""
    return name if len(name) <= most else f"{name[: most - most // 2 - 1]}…{name[-(most // 2) :]}"


def _figure(height: float, body: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" font-size="12" font-family="inherit" fill="#333">{body}</svg>'
