"""Small charts as SVG text: lines, bars, stacked bars, heat maps, profiles, ellipses, dendrograms, reliability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import numpy as np

# each at least 3.8 to 1 against white
PALETTE = ("#3b6fb6", "#c46a10", "#3d8a5f", "#c4504f", "#8467b0", "#8a6d5a", "#bb5a9a", "#6f7782", "#857d1c", "#2a8494")
WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 12, 40
NAMES = 120  # room for names at the left of bars
LEGEND = 6  # entries per line of a legend
MAX_PHONE = 480  # a wider picture scrolls sideways on a narrow screen
Numbers = Sequence[float] | np.ndarray
GREY = 'fill="#d5d8dd" stroke="#fff" stroke-width="0.5"'
AXIS = "#8c959f"
LETTER = 7.3  # width of a letter of a name, about
MOST_DIGITS = 8  # letters of a number that fit to the left of an axis


def line(x: Numbers, y: Numbers, x_label: str, y_label: str) -> str:
    """One curve, with a point for each value when there are few."""
    return lines({"": (x, y)}, x_label, y_label)


def lines(curves: Mapping[str, tuple[Numbers, Numbers]], x_label: str, y_label: str, floor: float | None = None) -> str:
    """Several curves by name on the same axes, in colours of their own and dashed from the second on.

    With `floor` the upright axis begins there, and not at the smallest value.
    """
    xs: list[float] = []
    ys: list[float] = [] if floor is None else [floor]
    for x, y in curves.values():
        xs.extend(x)
        ys.extend(y)
    body = axes(xs, ys, x_label, y_label)
    for k, (x, y) in enumerate(curves.values()):
        body += _curve(_scale(x, LEFT, WIDTH - RIGHT, xs), _scale(y, HEIGHT - BOTTOM, TOP, ys), k)
    entries = [(f'fill="{PALETTE[k % len(PALETTE)]}"', name) for k, name in enumerate(curves) if name]
    height = HEIGHT + 18 if entries else HEIGHT
    return _figure(height, body + _wide_legend(entries, HEIGHT + 12))


def _curve(px: np.ndarray, py: np.ndarray, k: int) -> str:
    """A line through points, with dots where there are few."""
    colour = PALETTE[k % len(PALETTE)]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px, py))
    dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in zip(px, py)) if len(px) <= 60 else ""
    dash = ' stroke-dasharray="5 3"' if k else ""
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/><g fill="{colour}">{dots}</g>'
    )


def bars(values: Mapping[str, float], notes: Mapping[str, str] | None = None) -> str:
    """A horizontal bar for each name, with its number (or its note) at the end; negative ones go left."""
    step, room = 24, 74
    v = np.array([float(x) for x in values.values()])
    low = min(0.0, float(np.nanmin(v, initial=0.0)))
    high = max(0.0, float(np.nanmax(v, initial=0.0)))
    left = NAMES + (room if low < 0 else 0)

    def place(value: float) -> float:
        """The x coordinate of a value."""
        return left + (value - low) / ((high - low) or 1.0) * (WIDTH - room - left)

    body = f'<path d="M{place(0.0):.1f},2V{step * len(v)}" stroke="{AXIS}"/>'
    for i, (name, value) in enumerate(values.items()):
        y = step * i
        a, b = sorted((place(0.0), place(value if np.isfinite(value) else 0.0)))
        text = (notes or {}).get(name, f"{value:.3g}")
        end = f'x="{a - 5:.1f}" text-anchor="end"' if value < 0 else f'x="{b + 5:.1f}"'
        body += _name(name, NAMES - 8, y + 16)
        body += f'<rect x="{a:.1f}" y="{y + 4}" width="{b - a:.1f}" height="{step - 8}" fill="{PALETTE[0]}"/>'
        body += f'<text {end} y="{y + 16}">{escape(text)}</text>'
    return _figure(step * len(v) + 4, body)


def columns(x: Numbers, heights: Numbers, x_label: str, y_label: str) -> str:
    """An upright bar for each value of x, which are equally far apart: a histogram."""
    h = np.asarray(heights, dtype=float)
    body = axes(x, [0.0, float(h.max(initial=0.0)) or 1.0], x_label, y_label)
    width = (WIDTH - RIGHT - LEFT) / max(len(h), 1)
    tall = h / (h.max(initial=0.0) or 1.0) * (HEIGHT - BOTTOM - TOP)
    for i, t in enumerate(tall):
        place = f'x="{LEFT + i * width + 0.5:.1f}" y="{HEIGHT - BOTTOM - t:.1f}"'
        body += f'<rect {place} width="{max(width - 1, 0.5):.1f}" height="{t:.1f}" fill="{PALETTE[0]}"/>'
    return _figure(HEIGHT, body)


def stacked(names: Sequence[str], shares: np.ndarray, removed: int = 0, parts_names: Sequence[str] = ()) -> str:
    """A stacked bar per name, from shares (names, parts) whose rows sum to one; the last `removed` parts are grey."""
    step = 22
    left = NAMES + 10
    parts = shares.shape[1]
    fills = [_fill(k) for k in range(parts - removed)] + [GREY] * removed
    labels = list(parts_names) or [str(k) for k in range(parts - removed)]
    entries = [(fills[k], labels[k]) for k in range(parts - removed)] + [(GREY, "removed")] * (removed > 0)
    legend = _legend(entries, left, step * len(names) + 22)
    cells = []
    for i, (name, row) in enumerate(zip(names, shares)):
        cells.append(_name(name, left - 8, i * step + 16))
        edges = left + (WIDTH - left - RIGHT) * np.concatenate([[0], np.cumsum(row)])
        for fill, (a, b) in zip(fills, pairwise(edges)):
            cells.append(
                f'<rect x="{a:.1f}" y="{i * step + 3}" width="{max(b - a, 0):.1f}" height="{step - 5}" {fill}/>'
            )
    height = step * len(names) + 18 + 16 * (1 + (len(entries) - 1) // LEGEND)
    return _figure(height, "".join(cells) + legend)


def shades(rows: Sequence[str], columns: Sequence[str], values: np.ndarray, texts: Sequence[Sequence[str]] = ()) -> str:
    """A heat map of shares (rows, columns) between 0 and 1, darker where larger; `texts` stand in place of percents."""
    left = NAMES + 10
    step = 22
    room = 40  # for the end of the last slanted name
    total = WIDTH if len(columns) <= 8 else 640
    width = min(60.0, (total - left - RIGHT - room) / max(len(columns), 1))
    slant, top = (-40, 76) if width > 22 else (-90, 118)  # upright names where slanted ones would overlap
    cells = _slanted_names(columns, left, width, top, slant)
    for i, name in enumerate(rows):
        y = top + i * step
        cells.append(_name(name, left - 8, y + 15))
        for j, v in enumerate(np.nan_to_num(values[i])):
            x = left + j * width
            size = f'width="{width - 2:.1f}" height="{step - 2}"'
            cells.append(f'<rect x="{x:.1f}" y="{y}" {size} fill="{PALETTE[0]}" opacity="{0.06 + 0.94 * v:.3f}"/>')
            if width > 30:
                ink = "#fff" if v > 0.75 else "#1f2328"
                text = texts[i][j] if len(texts) else f"{v:.0%}"
                middle = f'x="{x + width / 2 - 1:.1f}" y="{y + 15}" text-anchor="middle"'
                cells.append(f'<text {middle} fill="{ink}">{escape(text)}</text>')
    used = max(WIDTH, left + width * len(columns) + room + RIGHT) if total > WIDTH else WIDTH
    return _figure(top + step * len(rows) + 6, "".join(cells), used)


def _slanted_names(columns: Sequence[str], left: float, width: float, top: int, slant: int) -> list[str]:
    """Names above the columns of a heat map; some are left out where there is no room for all."""
    every = max(1, int(np.ceil(12 / width)))
    down = 4 if slant == -90 else 0
    names = []
    for j in range(0, len(columns), every):
        place = f"translate({left + (j + 0.5) * width:.1f},{top - 6}) rotate({slant})"
        names.append(f'<text transform="{place}" dy="{down}">{escape(short(str(columns[j]), 14))}</text>')
    return names


def profiles(columns: Sequence[str], means: np.ndarray, spreads: np.ndarray) -> str:
    """For each column a band with a dot (mean) and a line (one spread to either side) for each part: (k, d) each, scaled alike."""
    k = len(means)
    lane = 10
    band = k * lane + 10
    reach = float(np.abs(np.concatenate([means - spreads, means + spreads])).max(initial=1.0))
    middle = (NAMES + WIDTH - RIGHT) / 2
    half = (WIDTH - RIGHT - NAMES) / 2

    def place(value: float) -> float:
        """The x coordinate of a scaled value."""
        return middle + value / reach * half

    body = f'<path d="M{middle:.1f},0V{band * len(columns)}" stroke="{AXIS}" stroke-dasharray="2 3"/>'
    for j, name in enumerate(columns):
        top = j * band
        if j % 2 == 0:
            body += f'<rect x="0" y="{top}" width="{WIDTH}" height="{band}" fill="#f4f6f9"/>'
        body += _name(name, NAMES - 8, top + band / 2 + 4)
        for c in range(k):
            y = top + 5 + lane * (c + 0.5)
            colour = PALETTE[c % len(PALETTE)]
            low = place(means[c, j] - spreads[c, j])
            high = place(means[c, j] + spreads[c, j])
            body += f'<path d="M{low:.1f},{y:.1f}H{high:.1f}" stroke="{colour}" stroke-width="3" opacity="0.55"/>'
            body += f'<circle cx="{place(means[c, j]):.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    base = band * len(columns)
    ticks = [(NAMES, f"{-reach:.2g}", "start"), (middle, "0", "middle"), (WIDTH - RIGHT, f"{reach:.2g}", "end")]
    for at, text, anchor in ticks:
        body += f'<text x="{at:.1f}" y="{base + 15}" text-anchor="{anchor}">{text}</text>'
    return _figure(base + 20, body)


def ellipses(centres: np.ndarray, covs: np.ndarray, sizes: np.ndarray, x_label: str, y_label: str) -> str:
    """Parts in a plane: an ellipse at one and at two standard deviations about each centre (k, 2), numbered."""
    reach = 2.1 * np.sqrt(np.stack([covs[:, 0, 0], covs[:, 1, 1]], 1))  # (k, 2)
    low = (centres - reach).min(0)
    high = (centres + reach).max(0)
    span = np.maximum(high - low, 1e-12)
    height = 340
    unit = min((WIDTH - LEFT - RIGHT) / span[0], (height - BOTTOM - TOP) / span[1])  # the same on both axes
    origin = np.array([LEFT + (WIDTH - LEFT - RIGHT - unit * span[0]) / 2, height - BOTTOM])
    body = f'<path d="M{LEFT},{TOP}V{height - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="{AXIS}"/>'
    xs = origin[0] + unit * (centres[:, 0] - low[0])
    ys = origin[1] - unit * (centres[:, 1] - low[1])
    for c in np.argsort(-sizes):
        body += _ellipse(xs[c], ys[c], covs[c], unit, PALETTE[c % len(PALETTE)])
    for c, (x, y) in enumerate(zip(xs, ys)):
        body += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10" fill="#fff" stroke="{PALETTE[c % len(PALETTE)]}" stroke-width="2"/>'
        body += f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" font-size="11">{c + 1}</text>'
    return _figure(height, body + _axis_names(x_label, y_label, height))


def _ellipse(x: float, y: float, cov: np.ndarray, unit: float, colour: str) -> str:
    """A covariance as ellipses at one and two standard deviations."""
    values, vectors = np.linalg.eigh(cov)
    slant = -np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    long, small = unit * np.sqrt(np.maximum(values[::-1], 0))
    shape = (
        f'cx="{x:.1f}" cy="{y:.1f}" transform="rotate({slant:.1f} {x:.1f} {y:.1f})" fill="{colour}" stroke="{colour}"'
    )
    radii = ((2, 0.10), (1, 0.18))
    return "".join(
        f'<ellipse {shape} rx="{r * long:.1f}" ry="{r * small:.1f}" fill-opacity="{o}" stroke-opacity="0.6"/>'
        for r, o in radii
    )


def dendrogram(
    labels: Sequence[str], left: Sequence[int] | np.ndarray, right: Sequence[int] | np.ndarray, heights: Numbers
) -> str:
    """Merges of `labels`: step s joins nodes left[s] and right[s] into node len(labels) + s; further right is later."""
    step = 22
    start = NAMES
    order = _leaf_order(len(labels), left, right)
    top = max(float(np.max(heights, initial=0.0)), 1e-12)

    def place(height: float) -> float:
        """The x coordinate of a height."""
        return start + 6 + float(height) / top * (WIDTH - RIGHT - start - 6)

    at = {leaf: (place(0.0), step * i + step / 2) for i, leaf in enumerate(order)}
    body = "".join(_name(str(labels[leaf]), start, at[leaf][1] + 4) for leaf in order)
    for s, (a, b, h) in enumerate(zip(left, right, heights)):
        xa, ya = at[int(a)]
        xb, yb = at[int(b)]
        x = max(place(h), xa, xb)
        body += f'<path d="M{xa:.1f},{ya:.1f}H{x:.1f}V{yb:.1f}H{xb:.1f}" fill="none" stroke="{PALETTE[0]}" stroke-width="2"/>'
        at[len(labels) + s] = (x, (ya + yb) / 2)
    return _figure(step * len(labels) + 4, body)


def _leaf_order(leaves: int, left: Sequence[int] | np.ndarray, right: Sequence[int] | np.ndarray) -> list[int]:
    """Leaves so that no two branches cross."""
    under = {i: [i] for i in range(leaves)}
    for s, (a, b) in enumerate(zip(left, right)):
        under[leaves + s] = under.pop(int(a)) + under.pop(int(b))
    return [leaf for group in under.values() for leaf in group]


def reliability(promised: Numbers, seen: Numbers, x_label: str, y_label: str) -> str:
    """What was promised against what was seen, both from 0 to 1; a calibrated model lies on the diagonal."""
    size = 300

    def place(a: float, b: float) -> tuple[float, float]:
        """The coordinates of a point of the unit square."""
        return LEFT + a * (size - 20), TOP + (1 - b) * (size - 20)

    x0, y0 = place(0, 0)
    x1, y1 = place(1, 1)
    body = f'<path d="M{x0},{y1}V{y0}H{x1}" fill="none" stroke="{AXIS}"/>'
    body += f'<path d="M{x0},{y0}L{x1},{y1}" stroke="{AXIS}" stroke-dasharray="4 3"/>'
    spots = [place(a, b) for a, b in zip(promised, seen)]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in spots)
    body += f'<polyline points="{path}" fill="none" stroke="{PALETTE[0]}" stroke-width="2"/>'
    body += "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{PALETTE[0]}"/>' for a, b in spots)
    for value in (0, 0.5, 1):
        x, y = place(value, value)
        body += f'<text x="{x}" y="{y0 + 16}" text-anchor="middle">{value:g}</text>'
        body += f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:g}</text>'
    height = size + 32
    return _figure(height, body + _axis_names(x_label, y_label, height, x1))


# ---- pieces ----


def _scale(values: Numbers, low: float, high: float, among: Numbers | None = None) -> np.ndarray:
    """Values mapped linearly to [low, high], by the range of `among`."""
    v = np.asarray(values, dtype=float)
    every = np.asarray(values if among is None else among, dtype=float)
    span = np.ptp(every) or 1.0
    return low + (v - every.min()) / span * (high - low)


def axes(x: Numbers, y: Numbers, x_label: str, y_label: str) -> str:
    """A frame with the ends of both axes and their names."""
    base = HEIGHT - BOTTOM
    frame = f'<path d="M{LEFT},{TOP}V{base}H{WIDTH - RIGHT}" fill="none" stroke="{AXIS}"/>'
    low, high = ends(min(y), max(y))
    left, right = ends(min(x), max(x))
    side = f'x="{LEFT - 8}" text-anchor="end" dominant-baseline="middle"'
    ticks = f'<text {side} y="{base}">{low}</text><text {side} y="{TOP + 4}">{high}</text>'
    below = f'y="{base + 16}" text-anchor="middle"'
    ticks += f'<text {below} x="{LEFT}">{left}</text><text {below} x="{WIDTH - RIGHT - 6}">{right}</text>'
    return frame + ticks + _axis_names(x_label, y_label, HEIGHT)


def ends(low: float, high: float) -> tuple[str, str]:
    """The two ends of an axis, with as many digits as tell them apart: 1,636 or -25.93; "-25.9299" and "+6e-06" if many do."""
    if max(abs(low), abs(high)) >= 1000 and high - low >= 1:
        return f"{low:,.0f}", f"{high:,.0f}"
    for digits in range(4, 9):
        texts = f"{low:.{digits}g}", f"{high:.{digits}g}"
        if texts[0] != texts[1]:
            break
    if max(map(len, texts)) <= MOST_DIGITS:
        return texts
    small = f"{low:.3g}", f"{high:.3g}"  # 8.25e-08
    if small[0] != small[1] and max(map(len, small)) <= MOST_DIGITS:
        return small
    return f"{low:.6g}", f"+{high - low:.1g}"  # the ends differ in their last digits: the upper one as a difference


def _axis_names(x_label: str, y_label: str, height: float, right: float = WIDTH - RIGHT) -> str:
    """Names of the two axes."""
    middle = (LEFT + right) / 2
    below = f'<text x="{middle}" y="{height - 8}" text-anchor="middle">{escape(short(x_label, 62))}</text>'
    turned = f"translate(14,{(height - BOTTOM) / 2 + 6:.0f}) rotate(-90)"
    return f'{below}<text transform="{turned}" text-anchor="middle">{escape(short(y_label, int(height / 6.5)))}</text>'


def _legend(entries: Sequence[tuple[str, str]], left: int, y: float) -> str:
    """The colour and name of each part, LEGEND entries per line."""
    places = [(left + k % LEGEND * 46, y + k // LEGEND * 16) for k in range(len(entries))]
    return "".join(
        f'<rect x="{a}" y="{b - 9}" width="10" height="10" {fill}/><text x="{a + 14}" y="{b}">{escape(name)}</text>'
        for (fill, name), (a, b) in zip(entries, places)
    )


def _wide_legend(entries: Sequence[tuple[str, str]], y: float) -> str:
    """The colours and names of a few curves on one line."""
    width = (WIDTH - LEFT) / max(len(entries), 1)
    return "".join(
        f'<rect x="{LEFT + k * width:.1f}" y="{y - 9}" width="10" height="10" {fill}/>'
        f'<text x="{LEFT + 14 + k * width:.1f}" y="{y}">{escape(short(name, int(width / 7)))}</text>'
        for k, (fill, name) in enumerate(entries)
    )


def _name(name: str, right: float, y: float) -> str:
    """The name of a row, to the left of it."""
    return f'<text x="{right}" y="{y:g}" text-anchor="end">{escape(short(str(name), int(right / LETTER)))}</text>'


def _fill(k: int) -> str:
    """The colour of part k: the palette, then two paler versions of it."""
    paler = (1.0, 0.6, 0.3)[k // len(PALETTE) % 3]
    return f'fill="{PALETTE[k % len(PALETTE)]}" fill-opacity="{paler}"'


def short(name: str, most: int) -> str:
    """A long name without its middle, since names often differ at their end."""
    return name if len(name) <= most else f"{name[: most - most // 2 - 1]}…{name[-(most // 2) :]}"


def _figure(height: float, body: str, width: float = WIDTH) -> str:
    """The whole picture with its size; large ones scroll on a phone."""
    big = ' class="big"' if width > MAX_PHONE else ""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return f'<svg{big} {size} role="img" font-size="12" font-family="inherit" fill="#1f2328">{body}</svg>'
