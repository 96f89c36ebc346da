"""Naturally federated: Parkinsons telemonitoring, one client a subject; are intervals honest for a subject never seen?"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import _runs as runs
import numpy as np
from sklearn.dummy import DummyRegressor

import unpooled as up
from unpooled.datasets import shared
from unpooled.metrics import regression as metrics

SEEDS = 10
ROUNDS = 40
UNSEEN = 6  # of the 42 subjects
FILE = "results.jsonl"  # a line for each seed and method
DIFFERS = "The thesis deals the rows of all subjects into sorted chunks; here a client is one of the 42 patients."


def bnr(seed: int, rounds: int, recalibrate: bool | str = True) -> up.FedBNR:
    how = {"n_frequencies": 200, "max_iter": rounds, "patience": rounds, "random_state": seed}
    return up.FedBNR("exact", recalibrate=recalibrate, **how)


# intervals for new rows of the same subjects, or for new subjects; (seed, rounds) -> model
MODELS: dict[str, Callable[[int, int], Any]] = {
    "FedBNR exact": bnr,
    "FedBNR exact, recalibrate='clients'": partial(bnr, recalibrate="clients"),
    "BayesianRegression": lambda seed, rounds: up.BayesianRegression(recalibrate=True),
    "BayesianRegression, recalibrate='clients'": lambda seed, rounds: up.BayesianRegression(recalibrate="clients"),
    "mean of all": lambda seed, rounds: DummyRegressor(),
}


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    """One row a method, kind of rows and measure. What is found in the folder is not run again."""
    results = fill(range(seeds), MODELS, 10 if small else ROUNDS, out / FILE, say)
    return [
        {"method": method, "data": rows, "metric": metric, "seeds": len(values), "paper": None,
         "ours": float(np.mean(values)), "spread": float(np.std(values))}
        for method in MODELS
        for rows, measures in results[0, method].items()
        for metric in measures
        for values in [[results[seed, method][rows][metric] for seed in range(seeds)]]
    ]  # fmt: skip


def fill(
    seeds: Iterable[int], methods: Iterable[str], rounds: int, path: Path, say: Callable[[str], None]
) -> dict[tuple[int, str], dict]:
    """(seed, method) -> kind of rows -> measures; those that the file lacks are run now."""
    done = {(r["seed"], r["method"]): r["found"] for r in runs.finished(path) if r["rounds"] == rounds}
    path.parent.mkdir(parents=True, exist_ok=True)
    for key in ((seed, method) for seed in seeds for method in methods):
        if key not in done:
            done[key] = one(*key, rounds)
            say(f"seed {key[0]}, {key[1]}")
            runs.append(path, {"seed": key[0], "method": key[1], "rounds": rounds, "found": done[key]})
    return done


def one(seed: int, method: str, rounds: int) -> dict[str, dict[str, float]]:
    data = shared.parkinsons()
    rng = np.random.default_rng(seed)
    unseen = np.isin(data.groups, rng.permutation(np.unique(data.groups))[:UNSEEN])
    later = rng.random(len(data.y)) < 0.1
    fit, tests = ~unseen & ~later, {"new rows of the same subjects": ~unseen & later, "subjects never seen": unseen}
    model = MODELS[method](seed, rounds)
    by = {} if isinstance(model, DummyRegressor) else {"by": data.groups[fit]}
    model.fit(data.x[fit], data.y[fit], **by)
    return {rows: judge(model, data.x[chosen], data.y[chosen]) for rows, chosen in tests.items()}


def judge(model: Any, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    seen = {"rmse": metrics.rmse(y, model.predict(x))}
    if hasattr(model, "interval"):
        lower, upper = model.interval(x, 0.9)
        seen |= {"cover90": metrics.coverage(y, lower, upper), "width90": metrics.width(lower, upper)}
    return {name: float(value) for name, value in seen.items()}


def main() -> None:
    """Fill a part of the file of results: `python subjects.py 3 "FedBNR exact"`; `unpooled reproduce` makes the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("methods", nargs="*", default=list(MODELS), help="all unless given")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=runs.HERE / "results" / "subjects" / FILE)
    args = parser.parse_args()
    fill([args.seed], args.methods, args.rounds, args.out, print)


if __name__ == "__main__":
    main()
