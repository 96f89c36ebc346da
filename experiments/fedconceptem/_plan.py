"""All measurements of the FedConceptEM experiments, the most important first, and which of them are still to be run."""

from __future__ import annotations

from collections import Counter

import _jobs as jobs
from _measure import ORACLE

RATE = 0.1  # the best of the pilot's three
NEAREST = ("IFCA", "FedEM", "FeSEM", "FedAvg")


def plan(rounds: int) -> list[dict]:
    """Most important first."""
    half, seeds = rounds // 2, (0, 1, 2)
    return [
        *jobs.table1(seeds, rounds, [jobs.OURS]),
        *jobs.one_step(seeds, rounds, [jobs.OURS, "CFL"]),
        *jobs.one_step(seeds, rounds, [*NEAREST, "FedSoft", "CFL (3)", ORACLE, "APFL", "Local"]),
        *jobs.table1(seeds, rounds, NEAREST),
        *jobs.number(seeds, half),
        *jobs.table1(seeds, rounds, ["CFL", "CFL (3)"]),
        *jobs.noise(seeds, rounds, [50.0]),
        *jobs.number(seeds, half, concepts=1),
        *(one for one in jobs.counts(seeds, rounds) if one["concepts"] == 1 and one["method"] in (jobs.OURS, "FedAvg")),
        *jobs.table1(seeds, rounds, [ORACLE]),
        *jobs.other_steps(rounds),
        *jobs.table1(seeds, rounds, ["FedSoft", "Local", "APFL"]),
        *jobs.table1([0], rounds, ["FedEM as published"]),
        *jobs.variants([0], rounds),
        *jobs.participation(seeds, rounds, [0.2]),
        *jobs.participation([0], rounds, [0.6]),
        *jobs.counts([0], rounds),
        *jobs.table1(seeds, rounds, ["pFedMe", "FedEM as published"]),
        *jobs.one_step(seeds, rounds, ["pFedMe"]),
        *jobs.epochs([0], rounds),
        *jobs.noise([0], rounds, [10.0]),
    ]


def key(one: dict) -> tuple:
    return (*jobs.setting(one), one["seed"])


def with_rate(one: dict, lr: float) -> dict:
    return {**one, "options": {"lr": lr} | one.get("options", {})}


def missing(found: list[dict], rounds: int = 200) -> str:
    """A sentence: what of the plan is not among the measurements."""
    wanted = {key(one): one for one in (with_rate(one, RATE) for one in plan(rounds))}
    left = [one for name, one in wanted.items() if name not in {key(r) for r in found}]
    counts = Counter(_name(one) for one in left)
    listed = "; ".join(f"{name}: {n}" for name, n in counts.items())
    return f"Planned and not run: {listed}." if left else "All that was planned was run."


def _name(one: dict) -> str:
    own = {
        k: v
        for k, v in one["options"].items()
        if k in ("n_concepts", "noise", "fraction", "local_epochs", "batch_size")
    }
    more = [f"{k}={v}" for k, v in own.items()] + (
        [f"concepts={one['concepts']}"] if one.get("concepts", 3) != 3 else []
    )
    return ", ".join([one["part"], one["method"], one["split"], *more])
