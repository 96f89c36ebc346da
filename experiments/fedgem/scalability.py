"""OpenMixture keeps K and its score as clients, clusters and rows grow (FedGEM's scalability study)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from _curves import SCORE, WORK, Column, draw
from _data import separated
from _methods import MAIN, TOLD
from _runs import Plan, collect, table

SEEDS = 3
DIFFERS = "as in sensitivity.py; R_min is 4, and one of clients, K and rows grows at a time."
CLIENTS, SIZES, ROWS = (20, 50, 100, 200), (5, 10, 20, 40), (50, 100, 200, 400)
GROWN = {
    **{f"{c} clients": {"clients": c} for c in CLIENTS},
    **{f"K {k}": {"k": k, "clients": 100} for k in SIZES},
    **{f"{n} rows a client": {"rows": n} for n in ROWS},
}


def plans(small: bool, seeds: int) -> list[Plan]:
    chosen = dict(list(GROWN.items())[:1]) if small else GROWN
    cases = {name: lambda seed, how=how: separated(4, seed, **how) for name, how in chosen.items()}
    methods = MAIN if small else (*MAIN, "FedGEM, K_g by BIC", "k-FED", "federated k-means", "AFCL")
    return [Plan(cases, methods, range(1 if small else seeds))]


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    rows = collect(out, plans(small, seeds), say)
    say(f"picture: {picture(rows, out)}")
    return table(rows)


def picture(rows: list[dict], out: Path) -> Path:
    grown = {
        "clients (of 100 rows, K = 10)": {f"{c} clients": c for c in CLIENTS},
        "true clusters (100 clients)": {f"K {k}": k for k in SIZES},
        "rows a client (50 clients, K = 10)": {f"{n} rows a client": n for n in ROWS},
    }
    return draw(rows, [Column(*pair) for pair in grown.items()], SCORE | WORK, TOLD, out / "curves.png")
