"""Private mixtures where it is hard: bounds three times too wide and ill-conditioned components; many components; few rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from _gaps import gaps, row
from _kept import Kept
from _problems import REPORTED, mixture

SEEDS = 10
DIFFERS = "there is no paper; variances of one component differ by a factor of up to `condition` along random axes."
EPSILONS = (0.5, 1.0, 4.0)
CASES = {
    "condition 1e3, bounds 3 x too wide": (20_000, 5, 4, {"wide": 30.0, "condition": 1e3}, ".15 at 1"),
    "condition 1e5, bounds 3 x too wide": (20_000, 5, 4, {"wide": 30.0, "condition": 1e5}, ".15 at 1"),
    "bounds 10 x too wide": (10_000, 5, 4, {"wide": 100.0}, ""),
    "20 components": (20_000, 5, 20, {}, ""),
    "2000 rows": (2_000, 2, 3, {}, ""),
}


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    table = []
    for name, (rows, columns, k, how, goal) in CASES.items():
        say(name)
        problems = [partial(mixture, rows, columns, k, REPORTED + 500 + s, **how) for s in range(2 if small else seeds)]
        what = {"case": name, "rows": rows, "columns": columns, "components": k}
        found = gaps(name, problems, {"ours": EPSILONS}, Kept(out / "trials.jsonl"))
        table += [row(what, method, epsilon, v, goal if epsilon == 1 else "") for (method, epsilon), v in found.items()]
    return table
