"""Naturally federated: Parkinsons telemonitoring, one client a subject; are intervals honest for a subject never seen?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import unpooled as up
from unpooled.data import shared
from unpooled.metrics import regression as metrics

SEEDS = 10
UNSEEN = 6  # of the 42 subjects
DIFFERS = "The thesis deals the rows of all subjects into sorted chunks; here a client is one of the 42 patients."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    results = [one(seed, 10 if small else 40, say) for seed in range(seeds)]
    keys = list(results[0])
    return [
        {"method": method, "data": rows, "metric": metric, "seeds": seeds, "paper": None,
         "ours": float(np.mean([r[method, rows, metric] for r in results])),
         "spread": float(np.std([r[method, rows, metric] for r in results]))}
        for method, rows, metric in keys
    ]  # fmt: skip


def models(seed: int, rounds: int) -> dict[str, Any]:
    """The same two models, their intervals made for new rows of the same subjects and for new subjects."""
    bnr = {"n_frequencies": 200, "max_iter": rounds, "patience": rounds, "random_state": seed}
    return {
        "FedBNR exact": up.FedBNR("exact", **bnr),
        "FedBNR exact, recalibrate='clients'": up.FedBNR("exact", recalibrate="clients", **bnr),
        "BayesianRegression": up.BayesianRegression(recalibrate=True),
        "BayesianRegression, recalibrate='clients'": up.BayesianRegression(recalibrate="clients"),
    }


def one(seed: int, rounds: int, say: Callable[[str], None]) -> dict[tuple[str, str, str], float]:
    data = shared.parkinsons()
    rng = np.random.default_rng(seed)
    unseen = np.isin(data.groups, rng.permutation(np.unique(data.groups))[:UNSEEN])
    later = rng.random(len(data.y)) < 0.1
    fit, tests = ~unseen & ~later, {"new rows of the same subjects": ~unseen & later, "subjects never seen": unseen}
    found = {}
    for method, model in models(seed, rounds).items():
        model.fit(data.x[fit], data.y[fit], by=data.groups[fit])
        say(f"seed {seed}, {method}")
        for rows, chosen in tests.items():
            x, y = data.x[chosen], data.y[chosen]
            lower, upper = model.interval(x, 0.9)
            found[method, rows, "rmse"] = metrics.rmse(y, model.predict(x))
            found[method, rows, "cover90"] = metrics.coverage(y, lower, upper)
            found[method, rows, "width90"] = metrics.width(lower, upper)
    for rows, chosen in tests.items():
        found["mean of all", rows, "rmse"] = metrics.rmse(data.y[chosen], np.full(chosen.sum(), data.y[fit].mean()))
    return found
