"""On images and tables OpenMixture, told nothing, is above the central GMM that knows K, and finds K (FedGEM's Table of real data)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from _data import real
from _methods import MAIN, RIVALS
from _ranks import rank_table
from _runs import Plan, collect, table

SEEDS = 5
DIFFERS = (
    "embeddings are 20 principal components, not the paper's; clients hold 2 to 8 classes, 100 of them or as many as leave "
    "50 rows to each. The paper's figures for FedGEM are per-client ARI with the true K_g, for others pooled; 'ours' is "
    "pooled ARI for all."
)
SMALL = (
    "r15",
    "a1",
    "d31",
    "unbalance",
    "s1",
    "abalone",
    "satimage",
    "optdigits",
    "anuran_species",
    "waveform",
    "pendigits",
)
LARGE = ("fashion", "mnist")


def paper() -> dict[tuple[str, str], float]:
    """(case, method) -> the summary's figure."""
    expected = tomllib.loads((Path(__file__).parent / "expected.toml").read_text())["real_data"]
    return {(case, method): value for case, table in expected.items() for method, value in table.items()}


def plans(small: bool, seeds: int) -> list[Plan]:
    cases = {name: lambda seed, name=name: real(name, seed) for name in (SMALL[:1] if small else SMALL + LARGE)}
    return [Plan(cases, MAIN if small else MAIN + RIVALS, range(1 if small else seeds))]


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    return lines(collect(out, plans(small, seeds), say))


def lines(rows: list[dict]) -> list[dict]:
    """The table, with what the paper's figures are about and the mean rank of each method."""
    ranks = {line["method"]: line["mean rank"] for line in rank_table(rows)}
    return [line | _paper_says(line) | {"mean rank": ranks[line["method"]]} for line in table(rows, paper())]


def _paper_says(line: dict) -> dict:
    """The paper scores its own method within clients, its rivals over all rows."""
    own = line["method"] == "FedGEM"
    task = ("client ARI" if own else "pooled ARI") if line["paper"] is not None else None
    return {"paper is": task, "paper K found": paper().get((line["case"], "k_found")) if own else None}
