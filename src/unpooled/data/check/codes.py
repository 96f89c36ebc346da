"""Values that look like codes for missing: -9, 999 or 0 far from all other values, texts such as "unknown". Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

NUMBERS: tuple[float, ...] = (-1.0, -7.0, -8.0, -9.0, -77.0, -88.0, -99.0, -777.0, -888.0, -999.0, -9999.0, -99999.0)
NUMBERS += (9.0, 88.0, 99.0, 888.0, 999.0, 8888.0, 9999.0, 99999.0, 999999.0)
TEXTS = {
    *("unknown", "unk", "unkn", "n/a", "na", "n.a.", "nan", "null", "missing", "not available", "not known", "not recorded"),
    *("not done", "not measured", "no data", "nd", "-", "--", "---", ".", "?", "??"),
    *("99", "999", "9999", "-1", "-9", "-99", "-999"),
    *("unbekannt", "inconnu", "desconocido", "k.a.", "#n/a", "#null!"),
}  # fmt: skip
LEAST = 2  # rows with the value, at least
SPIKE = 0.02  # least share of rows that a repeated code has
FEW = 5  # most different values of a column of codes
GAP = 3.0  # 0 is a code only if the lowest value exceeds it by so many median distances of neighbouring values


def number_codes(present: np.ndarray) -> dict[str, int]:
    """Code -> rows, for the usual codes (and 0) that lie far from all other values.

    A usual code within the range of the other values is taken for one if it is repeated and they are not.

    >>> number_codes(np.array([120.0, 131.0, 0.0, 0.0, 118.0, 140.0, 125.0, 150.0]))
    {'0': 2}
    """
    found: dict[str, int] = {}
    for code in (*NUMBERS, 0.0):
        rows = int((present == code).sum())
        others = present[present != code]
        if LEAST <= rows < 0.5 * len(present) and (_apart(code, others) or _repeated(code, rows, others)):
            found[f"{code:g}"] = rows
    return found


def _apart(code: float, others: np.ndarray) -> bool:
    """Whether a value lies far from all others: outside their range by half of it or more, or 0 where all others are far above 0."""
    others = others[~np.isin(others, [c for c in NUMBERS if c != code])]
    if len(others) < 3:
        return False
    low = float(others.min())
    high = float(others.max())
    spread = high - low
    if spread == 0:
        return False
    if code == 0:
        return low > 0 and low > 0.3 * float(np.median(others)) and _leaves_gap(low, others)
    many = len(np.unique(others)) > FEW
    if code < 0:
        return low >= 0 and (many or (code <= -7 and low - code > 0.5 * spread))
    if code < 10:
        return not many and high <= 5 and bool((others == np.floor(others)).all())
    return code - high > max(0.5 * spread, 0.1 * abs(high))


def _leaves_gap(low: float, others: np.ndarray) -> bool:
    """Whether the lowest number lies farther from 0 than numbers lie from their neighbours; counts 1, 2, 3 do not."""
    values = np.unique(others)
    return len(values) > FEW and low > GAP * float(np.median(np.diff(values)))


def _repeated(code: float, rows: int, others: np.ndarray) -> bool:
    """Whether a usual code is a spike among numbers that hardly repeat."""
    if code == 0 or rows < max(5, SPIKE * len(others)):
        return False
    counts = np.unique(others, return_counts=True)[1]
    return bool(5 * counts.max(initial=0) <= rows)


def text_codes(levels: Mapping[str, int]) -> dict[str, int]:
    """Texts that usually mean missing, with their rows."""
    return {t: n for t, n in levels.items() if t.strip().lower() in TEXTS}
