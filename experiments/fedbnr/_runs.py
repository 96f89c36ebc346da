"""One fit of one method on one split, watched round by round on the test rows; every finished run is a line of a file.

The file is what a table is made from, and a run found in it is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import _protocol as protocol
import numpy as np
import torch
from threadpoolctl import threadpool_limits

import unpooled as up
from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.baselines.central_gp import CentralGP
from unpooled.client import Ask
from unpooled.federation import Layer
from unpooled.maths import bayes_linear
from unpooled.maths.feature_maps import features
from unpooled.metrics import regression as metrics
from unpooled.models.fedbnr.estimator import FedBNR
from unpooled.models.regression.design import statistics
from unpooled.models.regression.group_effects import members
from unpooled.models.regression.scaling import standard
from unpooled.tree import Tree

HERE = Path(__file__).parent
CONFIGS = tomllib.loads((HERE / "configs.toml").read_text())
FIRST = 10  # splits 0 to 9 were looked at before settings were final, and so were
FIRST_OF = {"sml": 20}  # ... those before these
HELD = 1 / 9  # of the rows at the clients: a tenth of all


def exact(name: str, split: protocol.Split, seed: int) -> up.FedBNR:
    return up.FedBNR("exact", validation_fraction=HELD, random_state=seed, **CONFIGS[name])


def central_exact(name: str, split: protocol.Split, seed: int) -> CentralGP:
    """Its kernel is learned on all rows: minutes on a GPU, hours without one."""
    return CentralGP("exact", device="cuda" if torch.cuda.is_available() else "cpu", random_state=seed)


def central_features(name: str, split: protocol.Split, seed: int) -> CentralGP:
    """FedBNR exact with all rows in one place."""
    return CentralGP("random features", settings={"validation_fraction": HELD, **CONFIGS[name]}, random_state=seed)


METHODS: dict[str, Callable[..., Any]] = {
    "FedBNR exact": exact,
    "Central GP": central_exact,
    "Central GP random features": central_features,
}


def run(name: str, clients: int, seed: int, method: str) -> dict[str, Any]:
    """Fit and judge: at the validation optimum, and as the thesis does at the best round for the test rows."""
    split = protocol.split(name, seed, clients)
    model = METHODS[method](name, split, seed)
    fed = up.federate(split.clients(), threads=1)
    start, curve = time.process_time(), list(watch(model, fed, split))
    history, best = getattr(model, "history_", []), getattr(model, "best_round_", 0)
    least = {"rmse_min": min(row["test_rmse"] for row in curve)} if curve else {}
    return {
        "set": name, "clients": clients, "seed": seed, "method": method, **judge(model, split), **least,
        "rounds": len(history), "best_round": best, "sums": getattr(model, "n_sums_", 0),
        "sums_to_best": curve[best - 1]["sums"] - 1 + history[best - 1]["sums"] if best else 0,
        "seconds": time.process_time() - start, "curve": curve if method == "FedBNR exact" else [],
    }  # fmt: skip


class Overheard(Layer):
    """Keeps the last layer's sums as they pass by, so that watching a model asks its clients nothing."""

    last: tuple[Tree, Tree]  # the design asked about, the sums

    def sum(self, ask: Ask, down: Tree) -> Tree:
        total = super().sum(ask, down)
        if ask.name == statistics.name:
            self.last = down, tree.map(to_numpy, total)
        return total


def watch(model: Any, fed: Any, split: protocol.Split) -> Iterator[dict[str, float]]:
    """Fits; yields the error on the test rows in every round."""
    if isinstance(model, CentralGP):
        model.fit(fed)
        return
    fed = Overheard(fed)
    for moment in model.rounds(fed):
        if moment.history:
            guess = glance(model, fed, split.x_test)
            sums = moment.state.spent + sum(row["sums"] for row in moment.history[:-1])
            yield {"sums": sums + 1, "test_rmse": float(f"{metrics.rmse(split.y_test, guess):.5g}")}


def glance(model: FedBNR, fed: Overheard, x: np.ndarray) -> np.ndarray:
    """Predictions of the kernel that the last round began with."""
    design, stats = fed.last
    post = bayes_linear.posterior(stats)
    z = features(model._spec(), design.kernel, standard(design.scaling, x))
    mean, _ = bayes_linear.predict(post, z, members(design.groups, x))
    return (design.scaling.y_mean + design.scaling.y_scale * mean)[:, 0]


def judge(model: Any, split: protocol.Split) -> dict[str, float]:
    """Errors and calibration on the test rows."""
    x, y = split.x_test, split.y_test
    mean, std = model.predict(x, return_std=True)
    return judge_one(y, mean, std, (lambda p: model.interval(x, p)) if hasattr(model, "interval") else None)


def judge_one(y: np.ndarray, mean: np.ndarray, std: np.ndarray, interval: Any = None) -> dict[str, float]:
    """With the intervals given, and with normal ones ("raw"); the same where none are given."""
    raw = metrics.calibration(y, metrics.normal_interval(mean, std))
    interval = interval or metrics.normal_interval(mean, std)
    seen = metrics.calibration(y, interval)
    lower, upper = interval(0.9)
    return {
        "rmse": metrics.rmse(y, mean), "nlpd": metrics.nlpd(y, mean, std),
        "ece": seen.ece, "mce": seen.mce, "brier": seen.brier, "ece_raw": raw.ece, "mce_raw": raw.mce, "brier_raw": raw.brier,
        "cover90": metrics.coverage(y, lower, upper), "width90": metrics.width(lower, upper),
    }  # fmt: skip


# ---- many runs ----


def finished(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_all(
    wanted: list[tuple[str, int, int, str]], path: Path, say: Callable[[str], None], jobs: int = 1
) -> list[dict[str, Any]]:
    """The results of all wanted runs; those that the file lacks are run now, `jobs` at a time, each on one thread."""
    done = {(r["set"], r["clients"], r["seed"], r["method"]): r for r in finished(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    missing = [key for key in wanted if key not in done]
    pool = ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else None
    for result in (pool.map if pool else map)(run_alone, missing):
        key = result["set"], result["clients"], result["seed"], result["method"]
        done[key] = result
        say(f"{key}: RMSE {result['rmse']:.4f} in {result['seconds']:.0f} s")
        append(path, result)
    if pool:
        pool.shutdown()
    return [done[key] for key in wanted]


def append(path: Path, result: dict[str, Any]) -> None:
    """One line in one write, so that many processes can fill the same file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, (json.dumps(result) + "\n").encode())
    os.close(file)


def seeds_of(name: str, count: int, first: int | None = None) -> range:
    """The splits of a set that tables are made of."""
    first = FIRST_OF.get(name, FIRST) if first is None else first
    return range(first, first + count)


def run_alone(key: tuple[str, int, int, str]) -> dict[str, Any]:
    torch.set_num_threads(1)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # columns that are constant at a client
        return run(*key)


def main() -> None:
    """Fill a file of results: `python _runs.py --jobs 16`; `python uci.py` makes the table of what is there."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sets", default=",".join(protocol.SETS))
    parser.add_argument("--clients", default="10,100")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, help="the first of the seeds; each set has its own otherwise")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "uci" / "results.jsonl")
    args = parser.parse_args()
    sets, methods = args.sets.split(","), args.methods.split(",")
    clients = [int(c) for c in args.clients.split(",")]
    wanted = [(s, c, k, m) for m in methods for s in sets for c in clients for k in seeds_of(s, args.seeds, args.first)]
    run_all(wanted, args.out, lambda text: print(text, flush=True), args.jobs)


if __name__ == "__main__":
    main()
