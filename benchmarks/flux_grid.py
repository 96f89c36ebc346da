"""FLUX's federations (Fenoglio et al., NeurIPS 2025) with default classifiers: known clients, and clients without labels.

    python benchmarks/flux_grid.py --shifts FOLDER --images fashion_mnist.npz --device cuda [--methods alone,FedConceptEM] [--levels 1,4,8]

FOLDER holds `shifts.py`, which makes the federations. The learner is LeNet-5. Methods without a suffix have FLUX's training (rate 0.005,
momentum 0.9, batches of 64, two local epochs, ten rounds). FedConceptEM's networks of groups take half as many rounds again; "-10" has
seven rounds and three of the groups, ten in all. "-own" is lr="auto" with at most 20 rounds. Known: test rows of each client under its own
name. Unseen: the same rows, by `adapt(X)`. Every fit is a line of JSON in --out, and fits that are there already are not made again; the
tables come last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("P(X)", "P(Y)", "P(Y|X)", "P(X|Y)")
FLUX_TRAINING = {"lr": 0.005, "momentum": 0.9, "batch_size": 64, "local_epochs": 2, "max_iter": 10}
OWN_TRAINING = {"max_iter": 20}
ALONE = {"personalize": "none"}
WARM = {"max_iter": FLUX_TRAINING["max_iter"] + 3, "embedding": 48}  # three rounds of the mixture alone
METHODS = {
    "FedConceptEM": ("FedConceptEM", FLUX_TRAINING),
    "FedConceptEM-10": ("FedConceptEM", FLUX_TRAINING | {"max_iter": 7}),
    "FedConceptEM-own": ("FedConceptEM", OWN_TRAINING),
    "FedAvg": ("FedAvg", FLUX_TRAINING),
    "FedAvg-own": ("FedAvg", OWN_TRAINING),
    "FedGMM": ("FedGMM", FLUX_TRAINING | WARM),
    "alone": ("LocalOnly", FLUX_TRAINING | ALONE),
    "alone-own": ("LocalOnly", OWN_TRAINING | ALONE),
}
TOLERANCE = 0.003  # by which a client alone may be better at a level


def lenet5(inputs: int, classes: int) -> Any:
    """LeNet-5 over images padded to 32 x 32: 6 and 16 maps, mean pooling, 120 and 84 units."""
    from torch import nn

    channels = inputs // 1024
    first = [nn.Unflatten(1, (channels, 32, 32)), nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.AvgPool2d(2)]
    second = [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(1)]
    last = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)]
    return nn.Sequential(*first, *second, *last)


def estimator(job: dict) -> Any:
    """The estimator of a job."""
    import unpooled as up
    from unpooled import baselines

    name, training = METHODS[job["method"]]
    common = {"learner": lenet5, "classes": list(range(10)), "random_state": job["seed"], "device": job["device"]}
    return getattr(up if hasattr(up, name) else baselines, name)(**common | training)


@cache
def images(path: str) -> dict[str, np.ndarray]:
    """The images, read once by each process."""
    import shifts

    return shifts.read(path)


def measure(job: dict) -> dict:
    """One method on one federation."""
    sys.path.insert(0, job["shifts"])
    import shifts
    import torch

    from unpooled.data.federate import federate

    data = images(job["images"])
    fed = shifts.shifted(data, job["kind"], job["level"], job["seed"], rows=job["rows"], test_rows=job["rows"])
    channels = 3 if fed.tinted else 1

    def named(parts: list) -> dict:
        return {n: (shifts.flat(p, t, channels, 2, 1.0), p.y) for n, p, t in zip(fed.names, parts, fed.tint)}

    engine = {"stack_cells": 10**10, "stack_padding": 1.0} if str(job["device"]).startswith("cuda") else {}
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(job).fit(federate(named(fed.train), threads=1, **engine))
        found = accuracies(model, named(fed.test))
    return {key: job[key] for key in ("method", "kind", "level", "seed")} | {
        "seconds": round(time.perf_counter() - start, 1),
        "rounds": len(model.history_),
        "parts": len(model.theta_),
        "groups": 0 if getattr(model, "groups_", None) is None else len(model.group_theta_),
        **{key: round(float(np.mean(values)), 4) for key, values in found.items()},
    }


def accuracies(model: Any, test: dict) -> dict[str, list[float]]:
    """Of each client: as a known one, by the shared model, and without labels."""
    found = {"known": [float((model.predict(x, client=n) == y).mean()) for n, (x, y) in test.items()]}
    if type(model).__name__ != "LocalOnly":
        found["shared"] = [float((model.predict(x) == y).mean()) for x, y in test.values()]
    if hasattr(model, "adapt"):
        found["unseen"] = [float((model.adapt(x).predict(x) == y).mean()) for x, y in test.values()]
    return found


def attempt(job: dict) -> dict:
    """`measure`, or a line that says what failed."""
    try:
        return measure(job)
    except Exception as error:
        return {key: job[key] for key in ("method", "kind", "level", "seed")} | {"error": repr(error)[:500]}


# ---- tables ----


def tables(rows: list[dict]) -> None:
    """For each method and seed means over kinds, by level; clients without labels without P(Y|X), as FLUX has it."""
    for row in rows:
        if "error" in row:
            print(f"failed: {row}")
    rows = [r for r in rows if "error" not in r]
    levels = sorted({r["level"] for r in rows})
    print(
        "| method | what | seed |", " | ".join(map(str, levels)), "| mean |\n|---|---|---|", "---|" * (len(levels) + 1)
    )
    for method, what in product(dict.fromkeys(r["method"] for r in rows), ("known", "unseen")):
        for seed in sorted({r["seed"] for r in rows}):
            means = [level_mean(rows, method, what, seed, level) for level in levels]
            if not np.isnan(means).all():
                cells = [f"{100 * v:.1f}" for v in (*means, np.nanmean(means))]
                print(f"| {method} | {what} | {seed} |", " | ".join(cells), "|")
    worse_than_alone(rows)


def level_mean(rows: list[dict], method: str, what: str, seed: int, level: int) -> float:
    """The mean over the kinds, NaN unless all were measured. Level 1 of P(Y) and that of P(Y|X) are one federation."""
    found = {r["kind"]: r.get(what) for r in rows if (r["method"], r["seed"], r["level"]) == (method, seed, level)}
    kinds = [k for k in KINDS if not (what == "unseen" and k == "P(Y|X)")]
    if level == 1 and "P(Y)" in found:
        found["P(Y|X)"] = found["P(Y)"]
    values = [found.get(kind) for kind in kinds]
    return float("nan") if None in values else float(np.mean(values))


def worse_than_alone(rows: list[dict]) -> None:
    """Print where known clients of FedConceptEM are below the client alone: fits, and means over kinds."""
    known = {(r["method"], r["kind"], r["level"], r["seed"]): r["known"] for r in rows}
    for method in sorted(m for m in {r["method"] for r in rows} if m.startswith("FedConceptEM")):
        alone = "alone-own" if method.endswith("own") else "alone"
        pairs = {
            key[1:]: known[key] - known[alone, *key[1:]]
            for key in known
            if key[0] == method and (alone, *key[1:]) in known
        }
        below = {key: round(100 * gain, 2) for key, gain in pairs.items() if gain < -TOLERANCE}
        if pairs:
            print(
                f"{method} minus {alone}: least {100 * min(pairs.values()):.2f} of {len(pairs)} fits; below: {below or 'none'}"
            )


# ---- the run ----


def wanted(given: argparse.Namespace, done: list[dict]) -> Iterator[dict]:
    """The jobs that are not done, in the order of the methods."""
    known = {(r["method"], r["kind"], r["level"], r["seed"]) for r in done if "error" not in r}
    shared = {"shifts": given.shifts, "images": given.images, "device": given.device, "rows": given.rows}
    methods, seeds, levels = (
        given.methods.split(","),
        map(int, given.seeds.split(",")),
        map(int, given.levels.split(",")),
    )
    for method, seed, level, kind in product(methods, seeds, levels, KINDS):
        twice = level == 1 and kind == "P(Y|X)"  # the same federation as level 1 of P(Y)
        if not twice and (method, kind, level, seed) not in known:
            yield shared | {"method": method, "kind": kind, "level": level, "seed": seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shifts", required=True)
    parser.add_argument("--images", required=True)
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", type=Path, default=Path("flux.jsonl"))
    parser.add_argument("--levels", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--methods", default="alone,FedConceptEM-10,FedConceptEM,FedAvg,FedGMM")
    parser.add_argument("--seeds", default="42")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rows", type=int, default=None, help="rows of a client, for a trial")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which nothing is begun")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    waiting, begun = wanted(given, rows), time.perf_counter()
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool, given.out.open("a") as out:
        running = {pool.submit(attempt, job) for _, job in zip(range(given.workers), waiting)}
        while running:
            ready = next(as_completed(running))
            running.remove(ready)
            rows.append(ready.result())
            print(json.dumps(rows[-1]), file=out, flush=True)
            if time.perf_counter() - begun < given.budget and (job := next(waiting, None)) is not None:
                running.add(pool.submit(attempt, job))
    tables(rows)


if __name__ == "__main__":
    main()
