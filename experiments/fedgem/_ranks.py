"""Mean ranks by pooled ARI among all methods, those that are told K included; 1 is best, ties share a rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from _methods import METHODS
from scipy.stats import rankdata


def rank_table(rows: list[dict]) -> list[dict[str, Any]]:
    """One line a method, best first.

    "common cells": sets and seeds that every method has, the fair comparison. "all cells": wherever a method was measured, its rank among
    those measured there, as a share of them (0 first, 1 last), so that a cell with few rivals counts no more than another.
    "sets": ranks of the mean over seeds, on sets that every method has at all; a set counts once, however close its seeds are.
    """
    cells = _cells(rows)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    common = [cell for cell in cells.values() if len(cell) == len(methods)]
    sets = [cell for cell in _sets(cells).values() if len(cell) == len(methods)]
    shares = _shares(cells)
    lines = [
        {
            "method": m,
            "told": METHODS[m][0] or "nothing",
            "mean rank": _rank(common, methods, m),
            "common cells": len(common),
            "mean rank of sets": _rank(sets, methods, m),
            "common sets": len(sets),
            "place in all cells": float(np.mean(shares[m])),
            "cells": len(shares[m]),
            "mean ARI": float(np.mean([cell[m] for cell in common])) if common else None,
        }
        for m in methods
    ]
    return sorted(lines, key=lambda line: (line["mean rank"] is None, line["mean rank"], line["place in all cells"]))


def _cells(rows: list[dict]) -> dict[tuple[str, int], dict[str, float]]:
    """(case, seed) -> method -> pooled ARI"""
    cells: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        cells.setdefault((row["case"], row["seed"]), {})[row["method"]] = row["pooled_ari"]
    return cells


def _sets(cells: dict[tuple[str, int], dict[str, float]]) -> dict[str, dict[str, float]]:
    """case -> method -> mean over its seeds"""
    found: dict[str, dict[str, list[float]]] = {}
    for (case, _), cell in cells.items():
        for method, ari in cell.items():
            found.setdefault(case, {}).setdefault(method, []).append(ari)
    return {case: {m: float(np.mean(v)) for m, v in cell.items()} for case, cell in found.items()}


def _rank(cells: list[dict[str, float]], methods: list[str], method: str) -> float | None:
    place = methods.index(method)
    return float(np.mean([rankdata([-cell[m] for m in methods])[place] for cell in cells])) if cells else None


def _shares(cells: dict[tuple[str, int], dict[str, float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for cell in cells.values():
        ranks = rankdata([-ari for ari in cell.values()]) - 1
        for method, rank in zip(cell, ranks / max(len(cell) - 1, 1)):
            found.setdefault(method, []).append(float(rank))
    return found
