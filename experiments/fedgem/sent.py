"""Under `Compressed`, 100 clients at d = 20 send at most 2 MB each with the default model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from _data import real
from _runs import Plan, collect, table

SEEDS = 5
NAMES = ("optdigits", "satimage", "mnist")  # 100 clients, 20 principal components
METHODS = ("OpenMixture auto, compressed",)
DIFFERS = "the paper counts no bytes. 'MB together' is what all clients send in the whole fit; 'compressed' is Compressed(fed)."


def plans(small: bool, seeds: int) -> list[Plan]:
    if small:
        return [Plan({"satimage": lambda seed: real("satimage", seed)}, METHODS, range(1))]
    cases = {name: lambda seed, name=name: real(name, seed) for name in NAMES}
    return [Plan(cases, METHODS, range(seeds))]


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    return lines(collect(out, plans(small, seeds), say))


def lines(rows: list[dict]) -> list[dict]:
    """The table, with what was sent."""
    return [
        line | _sent([r for r in rows if (r["case"], r["method"]) == (line["case"], line["method"])])
        for line in table(rows)
    ]


def _sent(rows: list[dict]) -> dict[str, float]:
    together = np.array([row["mb_up"] for row in rows])
    each = together / np.array([row["clients"] for row in rows])
    most = max(row["exchanges"] for row in rows)
    return {
        "MB together": float(together.mean()),
        "at most": float(together.max()),
        "MB a client": float(each.mean()),
        "exchanges": most,
    }
