"""Measurements that are kept: one line of JSON each, never made twice; tables are computed from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from _data import Problem
from _methods import METHODS, measure

Say = Callable[[str], None]
Case = tuple[str, Callable[[int], Problem]]  # name, seed -> problem


def collect(file: Path, cases: Iterable[Case], methods: Iterable[str], seeds: Iterable[int], say: Say) -> list[dict]:
    """Measure what the file does not hold yet, seed by seed, and return all that was asked for."""
    file.parent.mkdir(parents=True, exist_ok=True)
    known = {_key(row): row for row in read(file)}
    rows = []
    for seed in seeds:
        for case, make in cases:
            problem = None
            for method in methods:
                key = (case, method, seed)
                if key not in known:
                    problem = problem or make(seed)
                    row = {
                        "case": case,
                        "method": method,
                        "seed": seed,
                        "k_true": problem.k,
                        "clients": len(problem.rows),
                    }
                    known[key] = row | measure(problem, method, seed)
                    say(f"{case}, {method}, seed {seed}: ARI {known[key]['pooled_ari']:.3f}, K {known[key]['k']}")
                    with file.open("a") as out:
                        out.write(json.dumps(known[key]) + "\n")
                rows.append(known[key])
    return rows


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _key(row: dict) -> tuple[str, str, int]:
    return row["case"], row["method"], row["seed"]


def table(rows: list[dict], paper: dict[tuple[str, str], float] | None = None) -> list[dict[str, Any]]:
    """One line for each case and method: means over seeds, and how often K was right within 1."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["method"]), []).append(row)
    return [_line(case, method, group, (paper or {}).get((case, method))) for (case, method), group in groups.items()]


def _line(case: str, method: str, group: list[dict], paper: float | None) -> dict[str, Any]:
    ari = np.array([row["pooled_ari"] for row in group])
    k, true = (np.array([row[name] for row in group]) for name in ("k", "k_true"))
    return {
        "case": case,
        "method": method,
        "told": METHODS[method][0] or "nothing",
        "seeds": len(group),
        "ours": float(ari.mean()),
        "spread": float(ari.std()),
        "paper": paper,
        "client ARI": float(np.mean([row["client_ari"] for row in group])),
        "pooled NMI": float(np.mean([row["pooled_nmi"] for row in group])),
        "K": float(true.mean()),
        "K found": float(k.mean()),
        "K within 1": float((np.abs(k - true) <= 1).mean()),
        "structures": "/".join(sorted({row["structure"] for row in group})),
    }


def mean_ranks(rows: list[dict]) -> dict[str, float]:
    """method -> mean rank by pooled ARI over the cases and seeds that all methods have; 1 is best, ties share."""
    from scipy.stats import rankdata

    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        cells.setdefault((row["case"], row["seed"]), {})[row["method"]] = row["pooled_ari"]
    full = [cell for cell in cells.values() if len(cell) == len(methods)]
    ranks = np.array([rankdata([-cell[m] for m in methods]) for cell in full])
    return {m: float(r) for m, r in zip(methods, ranks.mean(0))} if len(full) else {}
