"""How far one row moves each private answer: 10,000 nasty pairs of parameters and rows for every question."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "models" / "private"))
from adversary import attack
from questions import CASES  # the same that the tests try, with other seeds

SEEDS = 10_000
DIFFERS = "there is no paper. `told` counts refusals that depended on the row: there must be none."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    table = []
    for name, (question, makers) in CASES.items():
        say(name)
        tries = 500 if small else seeds
        found = [attack(question, tries // 4, np.random.default_rng([1, w]), width=w, **makers) for w in (1, 2, 3, 6)]
        largest = max(f.largest for f in found)
        table.append(
            {
                "question": name,
                "pairs": sum(f.answered for f in found),
                "largest move": largest,
                "told": sum(f.told for f in found),
                "goal": "1",
            }
        )
    return table
