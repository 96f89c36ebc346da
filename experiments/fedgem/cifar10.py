"""On features of CIFAR-10 OpenMixture, told nothing, is above the central GMM that knows K, and finds K (FedGEM found 33.7 of 10)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from _data import real
from _runs import Plan, collect, table

SEEDS = 3
CASES = ("cifar10", "cifar10-50")
COMPARED = ("OpenMixture auto", "central GMM", "FedGEM", "k-FED", "federated k-means", "central DP-GMM")
DIFFERS = (
    "features are 512 of a frozen EfficientNet-Lite0 (blocks 13 and 15, images enlarged to 128 pixels) of the first 20,000 photographs, "
    "then 20 principal components, or 50 (cifar10-50); clients hold 2 to 8 classes, 100 of them. The paper's figure for FedGEM is the ARI "
    "within clients with the true K_g, for others it is pooled; 'ours' is pooled for all."
)


def paper() -> dict[tuple[str, str], float]:
    """(case, method) -> the summary's figure."""
    expected = tomllib.loads((Path(__file__).parent / "expected.toml").read_text())["real_data"]["cifar10"]
    return {(case, method): value for case in CASES for method, value in expected.items()}


def plans(small: bool, seeds: int) -> list[Plan]:
    names = ("r15",) if small else CASES
    cases = {name: lambda seed, name=name: real(name, seed) for name in names}
    return [Plan(cases, COMPARED[:2] if small else COMPARED, range(1 if small else seeds))]


def lines(rows: list[dict]) -> list[dict]:
    """The table, with the paper's figures beside."""
    return table(rows, paper())


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    return lines(collect(out, plans(small, seeds), say))
