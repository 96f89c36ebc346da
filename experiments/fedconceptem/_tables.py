"""What the experiments of this folder share: measure a list of jobs, one after the other, and make their table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import _jobs as jobs
import _measure

DIFFERS = (
    "corruptions are our own eleven kinds in SciPy, severity 1 to 5; the CNN has two convolutions and two dense layers; one "
    "learning rate, cosine schedule and batches of 32 for all methods; accuracy is that of the last round, not of the round of "
    "best training accuracy; an unseen client adapts on 1,000 labelled rows and is tested on the other 9,000. Small: "
    "scikit-learn's digits, 30 clients, an mlp, constant rate, batches of 8."
)


def run(wanted: list[dict], small: bool, out: Path, say: Callable[[str], None]) -> list[dict]:
    """Measure what `out` does not hold yet; every result is written as soon as it is there."""
    file = out / "measurements.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() and not small else []
    seen = {identity(r) for r in found}
    for one in wanted:
        if identity(one) in seen:
            continue
        say(f"{one['method']}, {one['split']}, seed {one['seed']} {one.get('options', '')}")
        found.append(_measure.measure(one, small, device()))
        file.write_text("".join(json.dumps(r) + "\n" for r in found))
    return jobs.rows(found)


def identity(one: dict) -> tuple:
    return (*jobs.setting(one), one["seed"], one["rounds"])


def device() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return "cuda" if torch.cuda.is_available() else None
