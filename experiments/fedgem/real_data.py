"""On images and tables OpenMixture, told nothing, is above the central GMM that knows K, and finds K (FedGEM's Table of real data)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from _data import real
from _methods import MAIN
from _runs import Plan, collect, mean_ranks, table

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
RIVALS = (
    "FedGEM, K_g by BIC",
    "k-FED",
    "federated k-means",
    "FFCM average",
    "FFCM cluster",
    "AFCL",
    "local EM",
    "central GMM, BIC",
    "central DP-GMM",
    "central HDBSCAN",
)


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
    """The table, with the mean rank of each method."""
    ranks = mean_ranks(rows)
    return [line | {"mean rank over all": ranks.get(line["method"])} for line in table(rows, paper())]
