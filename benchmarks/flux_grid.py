"""FLUX's federations (Fenoglio et al., NeurIPS 2025) with default classifiers: known clients, and clients without labels.

    python benchmarks/flux_grid.py --shifts FOLDER --images fashion_mnist.npz --device cuda [--own] [--levels 1,4,8] [--out FILE]

FOLDER holds `shifts.py`, which makes the federations. LeNet-5 with FLUX's training (rate 0.005, momentum 0.9, batches of 64, two local
epochs, ten rounds) or, with --own, lr="auto". Known: test rows of each client under its own name. Unseen: the same rows, by `adapt(X)`.
Every fit is a line of JSON in --out, and fits that are there already are not made again; the table comes last.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("P(X)", "P(Y)", "P(Y|X)", "P(X|Y)")
FLUX_TRAINING = {"lr": 0.005, "momentum": 0.9, "batch_size": 64, "local_epochs": 2, "max_iter": 10}
OWN_TRAINING = {"max_iter": 20}


def lenet5(inputs: int, classes: int) -> Any:
    """LeNet-5 over images padded to 32 x 32: 6 and 16 maps, mean pooling, 120 and 84 units."""
    from torch import nn

    channels = inputs // 1024
    first = [nn.Unflatten(1, (channels, 32, 32)), nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.AvgPool2d(2)]
    second = [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(1)]
    last = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)]
    return nn.Sequential(*first, *second, *last)


def models(common: dict) -> dict[str, Any]:
    import unpooled as up
    from unpooled import baselines

    warm = {"max_iter": common["max_iter"] + 3, "embedding": 48}
    return {
        "FedConceptEM": lambda: up.FedConceptEM(**common),
        "FedAvg": lambda: baselines.FedAvg(**common),
        "FedGMM": lambda: up.FedGMM(**common | warm),
        "alone": lambda: baselines.LocalOnly(**common, personalize="none"),
    }


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

    common = (OWN_TRAINING if job["own"] else FLUX_TRAINING) | {
        "learner": lenet5,
        "classes": list(range(10)),
        "random_state": job["seed"],
        "device": job["device"],
    }
    engine = {"stack_cells": 10**10, "stack_padding": 1.0} if str(job["device"]).startswith("cuda") else {}
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = models(common)[job["method"]]().fit(federate(named(fed.train), threads=1, **engine))
        test = named(fed.test)
        found = {"known": [float((model.predict(x, client=n) == y).mean()) for n, (x, y) in test.items()]}
        if job["method"] != "alone":
            found["shared"] = [float((model.predict(x) == y).mean()) for x, y in test.values()]
        if hasattr(model, "adapt"):
            found["unseen"] = [float((model.adapt(x).predict(x) == y).mean()) for x, y in test.values()]
    return {key: job[key] for key in ("method", "kind", "level", "seed", "own")} | {
        "seconds": round(time.perf_counter() - start, 1),
        "parts": len(model.theta_),
        "groups": 0 if getattr(model, "groups_", None) is None else len(model.group_theta_),
        **{key: round(float(np.mean(values)), 4) for key, values in found.items()},
    }


def table(rows: list[dict]) -> None:
    """Means over kinds, by level; clients without labels without P(Y|X), as FLUX has it."""
    levels = sorted({r["level"] for r in rows})
    print("| method | what |", " | ".join(map(str, levels)), "| mean |\n|---|---|", "---|" * (len(levels) + 1))
    for method in dict.fromkeys(r["method"] for r in rows):
        for what in ("known", "unseen"):
            own = [
                r
                for r in rows
                if r["method"] == method and what in r and not (what == "unseen" and r["kind"] == "P(Y|X)")
            ]
            if not own:
                continue
            by_level = [np.mean([r[what] for r in own if r["level"] == level]) for level in levels]
            cells = [f"{100 * v:.1f}" for v in (*by_level, np.mean(by_level))]
            print(f"| {method} | {what} |", " | ".join(cells), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shifts", required=True)
    parser.add_argument("--images", required=True)
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", type=Path, default=Path("flux.jsonl"))
    parser.add_argument("--levels", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--methods", default="FedConceptEM,alone,FedAvg,FedGMM")
    parser.add_argument("--seeds", default="42")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rows", type=int, default=None, help="rows of a client, for a trial")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which nothing is begun")
    parser.add_argument("--own", action="store_true")
    given = parser.parse_args()
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    known = {(r["method"], r["kind"], r["level"], r["seed"], r["own"]) for r in done}
    shared = {
        "shifts": given.shifts,
        "images": given.images,
        "device": given.device,
        "rows": given.rows,
        "own": given.own,
    }
    jobs = [
        shared | {"method": method, "kind": kind, "level": int(level), "seed": int(seed)}
        for seed in given.seeds.split(",")
        for method in given.methods.split(",")
        for level in given.levels.split(",")
        for kind in KINDS
        if (method, kind, int(level), int(seed), given.own) not in known
    ]
    rows, begun = done, time.perf_counter()
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool, given.out.open("a") as out:
        waiting = iter(jobs)
        running = {pool.submit(measure, job) for _, job in zip(range(given.workers), waiting)}
        while running:
            ready = next(as_completed(running))
            running.remove(ready)
            rows = [*rows, ready.result()]
            print(json.dumps(rows[-1]), file=out, flush=True)
            if time.perf_counter() - begun < given.budget and (job := next(waiting, None)) is not None:
                running.add(pool.submit(measure, job))
    table([r for r in rows if r["own"] == given.own])


if __name__ == "__main__":
    main()
