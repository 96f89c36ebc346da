"""With identical clients OpenMixture is no worse than the central GMM with K by BIC; with ten clients no worse than "gaussians"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from _data import identical, real
from _runs import collect, table

SEEDS = 3
DIFFERS = "the paper has no such study: it asks what happens where the structure that topics live on is missing."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    names = ("r15",) if small else ("r15", "s1", "satimage", "pendigits")
    alike = [(f"{n}, identical clients", lambda seed, n=n: identical(n, seed, 12 if n == "r15" else 50)) for n in names]
    few = [(f"{n}, ten clients", lambda seed, n=n: real(n, seed, 10)) for n in names]
    file, chosen = out / "alike_or_few.jsonl", range(1 if small else seeds)
    rows = collect(file, alike, ("OpenMixture auto", "central GMM, BIC"), chosen, say)
    rows += collect(file, few, ("OpenMixture auto", "OpenMixture gaussians"), chosen, say)
    return table(rows)
