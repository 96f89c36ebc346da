"""From totals to results: tables of each slot, histograms, patterns, correlations; counts of few rows are withheld."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.models.describe.patterns import Patterns
from unpooled.models.describe.questions import Moments, PairMoments, Sums


class Levels(NamedTuple):
    """Names of the columns, and the levels of those that have some."""

    names: list[str]
    column: np.ndarray  # (l,) whose level it is
    value: np.ndarray  # (l,)
    texts: np.ndarray  # (d,) which columns hold texts: they have levels, perhaps none with enough rows
    codes: np.ndarray  # (d,) which of them have levels without an order: no mean and no quantiles


def means(sums: Sums) -> np.ndarray:
    """Means by slot and column, (s, d)."""
    return sums.x / np.maximum(sums.seen, 1e-300)


def slots(
    sums: Sums, moments: Moments, levels: Levels, quantiles: np.ndarray, ends: np.ndarray, least: float
) -> list[dict]:
    """The results of each slot: `rows`, `table`, `quantiles` and `levels`."""
    out = []
    for i, rows in enumerate(sums.rows):
        table = _table(float(rows), sums.seen[i], means(sums)[i], moments.x[i], moments.xx[i], least)
        table |= {"low": ends[i, 0], "high": ends[i, 1]}
        table |= {key: np.where(levels.codes, np.nan, table[key]) for key in ("mean", "sd", "low", "high")}
        counted = _level_tables(sums.seen[i], moments.level[i], levels, least)
        ordered = np.where(levels.codes, np.nan, quantiles[i])
        out.append({"rows": float(rows), "table": table, "quantiles": ordered, "levels": counted})
    return out


def _table(rows: float, seen: np.ndarray, mean: np.ndarray, x: np.ndarray, xx: np.ndarray, least: float) -> dict:
    """Counts, means and standard deviations (by n - 1) from sums about a first mean."""
    with np.errstate(invalid="ignore", divide="ignore"):
        better = mean + x / seen
        variance = np.where(seen > 1, np.maximum(xx - x**2 / seen, 0.0) / (seen - 1), np.nan)
    enough = (seen >= least) & (seen > 0)
    mean = np.where(enough, better, np.nan)
    sd = np.where(enough, np.sqrt(variance), np.nan)
    return {"n": seen, "missing": rows - seen, "mean": mean, "sd": sd}


def _level_tables(seen: np.ndarray, counts: np.ndarray, levels: Levels, least: float) -> dict[str, dict]:
    """Rows of each level, by the name of its column."""
    found = {}
    for j in np.union1d(levels.column, np.flatnonzero(levels.texts)):
        which = levels.column == j
        other = float(seen[j] - counts[which].sum())
        found[levels.names[j]] = {"values": levels.value[which], "rows": _shown(counts[which], least), "other": other}
    return found


def histograms(edges: np.ndarray | None, rows: np.ndarray | None, levels: Levels, least: float) -> dict[str, dict]:
    """Edges (bins + 1,) and rows (bins,) of every column that has a range and no levels."""
    if edges is None or rows is None:
        return {}
    ranged = np.isfinite(edges).all(1) & ~levels.texts
    shown = np.setdiff1d(np.flatnonzero(ranged), levels.column)
    return {levels.names[j]: {"edges": edges[j], "rows": _shown(rows[j], least)} for j in shown}


def _shown(rows: np.ndarray, least: float) -> np.ndarray:
    """Counts without those that are few."""
    return np.where((rows > 0) & (rows < least), np.nan, rows)


def pattern_table(found: Patterns, rows: float, names: list[str]) -> dict:
    """Patterns of missing values, the most frequent first, and rows of all others."""
    order = np.argsort(-found.rows, kind="stable")
    counts = found.rows[order]
    columns = [names[j] for j in found.columns]
    return {"columns": columns, "missing": found.gone[order], "rows": counts, "other": rows - float(counts.sum())}


def correlations(pairs: PairMoments | None, least: float) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Correlations over the rows in which both columns are there, and these rows; NaN where they are few or one does not vary."""
    if pairs is None:
        return None, None
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = pairs.xy - pairs.x * pairs.x.T / pairs.n
        variance = pairs.xx - pairs.x**2 / pairs.n
        varies = variance > 1e-24 * pairs.xx + 1e-300
        correlation = covariance / (np.sqrt(variance) * np.sqrt(variance.T))
    known = varies & varies.T & (pairs.n >= max(least, 2))
    return np.where(known, np.clip(correlation, -1.0, 1.0), np.nan), pairs.n
