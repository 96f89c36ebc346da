"""What was asked of FedConceptEM, what the measurements say, and whether it is reached; what was not run says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from _jobs import OURS
from _measure import ORACLE

SEEDS, ADAPTIVE_SEEDS = 3, 10


class Asked(NamedTuple):
    what: str
    asked: str
    seeds: int
    measured: list[float]  # one a run
    reached: Callable[[np.ndarray], bool] | None  # None: nothing was asked, it is shown for comparison


def verdicts(found: list[dict]) -> list[dict[str, Any]]:
    """A row for each figure asked for."""
    asked = [
        *accuracies(found),
        *accuracies(found, "one step", ", one step a round"),
        *(adaptive(found, models) for models in (6, 8)),
        *(against_told(found, models) for models in (6, 8)),
        *(number(found, concepts) for concepts in (3, 1)),
        adaptive(found, 6, concepts=1, seeds=SEEDS),
        against_fedavg(found),
        *(lost(found, name, value, most) for name, value, most in (("noise", 50.0, 1), ("fraction", 0.2, 2))),
    ]
    return [row(one) for one in asked]


def row(one: Asked) -> dict[str, Any]:
    runs = len(one.measured)
    said = {"figure": one.what, "asked": one.asked, "runs": f"{runs} of {one.seeds}"}
    if not runs:
        return said | {"mean": None, "reached": "not run"}
    if one.reached is None:
        return said | {"mean": float(np.mean(one.measured)), "reached": "-"}
    reached = "yes" if one.reached(np.array(one.measured)) else "no"
    return said | {
        "mean": float(np.mean(one.measured)),
        "reached": reached if runs >= one.seeds else f"{reached}, so far",
    }


# ---- the figures ----


def accuracies(found: list[dict], part: str = "table1", more: str = "") -> list[Asked]:
    """Of table 1: accuracies, clients in the right concept, and how far the best other method is behind."""
    out = []
    for split, goals in {"lda": {"global": 82, "local": 80}, "prior": {"global": 78}}.items():
        runs, where = ours(found, part, split=split), f"{split}{more}"
        for name, goal in goals.items():
            out.append(Asked(f"{name} accuracy, {where}, %", f">= {goal}", SEEDS, percent(runs, name), least(goal)))
        out.append(
            Asked(f"clients in the right concept, {where}, %", ">= 97", SEEDS, percent(runs, "right"), least(97))
        )
        above = margins(found, runs)
        best = min(above, key=lambda name: float(np.mean(above[name])), default=None)
        points = above[best] if best else []
        out.append(
            Asked(f"points above every baseline, {where}, global ({best} is next)", ">= 10", SEEDS, points, least(10))
        )
        each = [min(points) for points in zip(*(m for m in above.values() if len(m) == len(runs)))]
        out.append(Asked(f"the same, against the best baseline of each seed, {where}", "-", SEEDS, each, None))
    return out


def adaptive(found: list[dict], models: int, concepts: int = 3, seeds: int = ADAPTIVE_SEEDS) -> Asked:
    """Runs that began with too many models and removed those not needed: an option that has gone since."""
    runs = [one for one in ours(found, "adaptive", concepts=concepts) if one["options"]["n_concepts"] == models]
    ends = [100.0 * (one["n_concepts"] == concepts) for one in runs]
    return Asked(f"adaptive from {models} ends at exactly {concepts}, % of seeds", ">= 90", seeds, ends, least(90))


def number(found: list[dict], concepts: int) -> Asked:
    """Runs that were not told the number of concepts."""
    ends = [100.0 * (one["n_concepts"] == concepts) for one in ours(found, "number", concepts=concepts)]
    return Asked(f"number not told: ends at exactly {concepts}, % of seeds", ">= 90", SEEDS, ends, least(90))


def against_told(found: list[dict], models: int) -> Asked:
    """Points of global accuracy that an adaptive run (see `adaptive`) loses against one of the same seed that was told the number."""
    runs = ours(found, "adaptive", concepts=3)
    by_models = {k: {r["seed"]: r["global"] for r in runs if r["options"]["n_concepts"] == k} for k in (3, models)}
    points = [100 * (by_models[3][s] - by_models[models][s]) for s in sorted(by_models[3]) if s in by_models[models]]
    return Asked(f"points lost by adaptive from {models}", "<= 0.5", SEEDS, points, lambda x: x.mean() <= 0.5)


def against_fedavg(found: list[dict]) -> Asked:
    """With one concept: points of global accuracy below FedAvg."""
    runs = [one for one in found if one["part"] == "counts" and one.get("concepts") == 1]
    by_method = {name: {r["seed"]: r["global"] for r in runs if r["method"] == name} for name in (OURS, "FedAvg")}
    points = [100 * (value - by_method[OURS][s]) for s, value in by_method["FedAvg"].items() if s in by_method[OURS]]
    return Asked("one concept: points below FedAvg", "<= 1", SEEDS, points, lambda x: x.mean() <= 1)


def lost(found: list[dict], option: str, value: float, most: float) -> Asked:
    """Points of global accuracy that a hardship costs, against the same seed without it."""
    plain = {one["seed"]: one["global"] for one in ours(found, "table1", split="lda")}
    hard = [one for one in found if one["part"] != "table1" and one.get("options", {}).get(option) == value]
    points = [100 * (plain[one["seed"]] - one["global"]) for one in hard if one["seed"] in plain]
    return Asked(f"points lost with {option}={value:g}", f"<= {most:g}", SEEDS, points, lambda x: x.mean() <= most)


# ---- the runs ----


def ours(found: list[dict], part: str, **settings: Any) -> list[dict]:
    settings |= {"part": part, "method": OURS}
    return [one for one in found if all(one.get(key) == value for key, value in settings.items())]


def margins(found: list[dict], runs: list[dict]) -> dict[str, list[float]]:
    """By how many points of global accuracy our runs are above those of each other method, seed by seed."""
    out: dict[str, list[float]] = {}
    for one in runs:
        for other in found:
            same = all(other[key] == one[key] for key in ("part", "split", "seed"))
            if same and not other["method"].startswith((OURS, ORACLE)):
                out.setdefault(other["method"], []).append(100 * (one["global"] - other["global"]))
    return out


def percent(runs: list[dict], name: str) -> list[float]:
    return [100 * one[name] for one in runs]


def least(goal: float) -> Callable[[np.ndarray], bool]:
    return lambda x: bool(x.mean() >= goal)
