"""OpenMixture keeps K and its score as clients, clusters and rows grow (FedGEM's scalability study)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from _data import separated
from _methods import MAIN
from _runs import Plan, collect, table

SEEDS = 3
DIFFERS = "as in sensitivity.py; R_min is 4, and one of clients, K and rows grows at a time."
GROWN = {
    **{f"{c} clients": {"clients": c} for c in (20, 50, 100, 200)},
    **{f"K {k}": {"k": k, "clients": 100} for k in (5, 10, 20, 40)},
    **{f"{n} rows a client": {"rows": n} for n in (50, 100, 200, 400)},
}


def plans(small: bool, seeds: int) -> list[Plan]:
    chosen = dict(list(GROWN.items())[:1]) if small else GROWN
    cases = {name: lambda seed, how=how: separated(4, seed, **how) for name, how in chosen.items()}
    methods = MAIN if small else (*MAIN, "FedGEM, K_g by BIC", "k-FED", "federated k-means", "AFCL")
    return [Plan(cases, methods, range(1 if small else seeds))]


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    return table(collect(out, plans(small, seeds), say))
