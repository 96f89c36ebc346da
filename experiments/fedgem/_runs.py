"""Cached measurements: one line of JSON each in measured.jsonl, never made twice; tables are computed from them.

An experiment is a list of plans. Processes may measure parts of it in parallel (`_job.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _data import Problem
from _methods import METHODS, measure

Say = Callable[[str], None]
Cell = tuple[str, str, int]  # case, method, seed


class Plan(NamedTuple):
    """Every case by every method for these seeds."""

    cases: dict[str, Callable[[int], Problem]]  # name -> (seed -> problem)
    methods: Sequence[str]
    seeds: range

    def cells(self) -> Iterator[Cell]:
        return ((case, method, seed) for seed in self.seeds for case in self.cases for method in self.methods)


def everything(cell: Cell) -> bool:
    return True


def collect(folder: Path, plans: Sequence[Plan], say: Say, chosen: Callable[[Cell], bool] = everything) -> list[dict]:
    """Measure the chosen cells that the folder does not hold yet, a line of measured.jsonl each; return what it holds of the plans."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {_key(row): row for row in read(folder)}
    wanted = {cell: plan.cases[cell[0]] for plan in plans for cell in plan.cells()}
    problem: tuple[str, int, Problem] | None = None
    for (case, method, seed), make in wanted.items():
        if (case, method, seed) in known or not chosen((case, method, seed)):
            continue
        if problem is None or problem[:2] != (case, seed):
            problem = case, seed, make(seed)
        row = known[case, method, seed] = _measured(case, method, seed, problem[2])
        say(f"{case}, {method}, seed {seed}: ARI {row['pooled_ari']:.3f}, K {row['k']}")
        with (folder / "measured.jsonl").open("a") as out:
            out.write(json.dumps(row) + "\n")
    return [known[cell] for cell in wanted if cell in known]


def _measured(case: str, method: str, seed: int, problem: Problem) -> dict[str, Any]:
    what = {"case": case, "method": method, "seed": seed, "k_true": problem.k, "clients": len(problem.rows)}
    return what | measure(problem, method, seed)


def read(folder: Path) -> list[dict]:
    file = folder / "measured.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _key(row: dict) -> Cell:
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
        "client ARI": _mean(group, "client_ari"),
        "pooled NMI": _mean(group, "pooled_nmi"),
        "client NMI": _mean(group, "client_nmi"),
        "silhouette": _mean(group, "silhouette"),
        "centre error": _mean(group, "centre_error"),
        "K": float(true.mean()),
        "K found": float(k.mean()),
        "K within 1": float((np.abs(k - true) <= 1).mean()),
        "structures": "/".join(sorted({row["structure"] for row in group})),
        "CPU s": _mean(group, "cpu_seconds"),
    }


def _mean(group: list[dict], name: str) -> float | None:
    """Over the lines that have it."""
    values = [row[name] for row in group if name in row]
    return float(np.mean(values)) if values else None
