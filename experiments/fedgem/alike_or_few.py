"""With identical clients OpenMixture is no worse than the central GMM with K by BIC; with ten clients no worse than "gaussians"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from _data import identical, identical_separated, real
from _runs import Plan, collect, table

SEEDS = 5
NAMES = ("r15", "s1", "a1", "d31", "unbalance", "satimage", "optdigits", "pendigits")
RADII = (1, 2, 4)
DIFFERS = "the paper has no such study: it asks what happens where the structure that topics live on is missing."


def plans(small: bool, seeds: int) -> list[Plan]:
    names = NAMES[:1] if small else NAMES
    alike = {f"{n}, identical clients": lambda seed, n=n: identical(n, seed, 12 if n == "r15" else 50) for n in names}
    if not small:
        alike |= {f"R_min {r}, identical clients": lambda seed, r=r: identical_separated(r, seed) for r in RADII}
    few = {f"{n}, ten clients": lambda seed, n=n: real(n, seed, 10) for n in names}
    return [
        Plan(alike, ("OpenMixture auto", "central GMM, BIC"), range(1 if small else seeds)),
        Plan(few, ("OpenMixture auto", "OpenMixture gaussians"), range(1 if small else seeds)),
    ]


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    return table(collect(out, plans(small, seeds), say))
