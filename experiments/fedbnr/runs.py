"""One fit of one method on one split, watched round by round on the test rows; every finished run is a line of a file.

The file is what a table is made from, and a run found in it is not run again.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import protocol

import unpooled as up
from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.metrics import regression as metrics
from unpooled.models.last_layer import LastLayer, statistics

HERE = Path(__file__).parent
CONFIGS = tomllib.loads((HERE / "configs.toml").read_text())
HELD = 1 / 9  # of the rows at the clients: a tenth of all


def published(name: str, **options: Any) -> dict[str, Any]:
    """The thesis's network and 50 draws shifted by a small network; widths stay below its 200 to 5000, for two cores."""
    return {"features": "deep", "n_frequencies": 50, "frequencies": "shifted", "activation": "relu", "latent_dim": 8,
            "hidden": (64, 64), "max_iter": 100, "patience": 5, "local_epochs": 10, "local_rate": 0.003, **options}  # fmt: skip


def exact(name: str, split: protocol.Split, seed: int) -> up.FedBNR:
    return up.FedBNR("exact", validation_fraction=HELD, random_state=seed, **CONFIGS[name])


def average(name: str, split: protocol.Split, seed: int) -> up.FedBNR:
    """As printed, with the sign of the evidence put right: noise and prior are averaged, intervals are the normal ones."""
    options = published(name, server_noise=False, recalibrate=False, validation_fraction=HELD)
    return up.FedBNR("average", random_state=seed, **options)


def average_server(name: str, split: protocol.Split, seed: int) -> up.FedBNR:
    """The same, but noise and prior from the global evidence, and honest intervals: no round more than one."""
    return up.FedBNR("average", random_state=seed, **published(name, validation_fraction=HELD))


def distill(name: str, split: protocol.Split, seed: int) -> up.FedBNR:
    """The validation rows lie at the server, which distils on 80 % of them."""
    server = (split.x[split.held], split.y[split.held])
    options = published(name, server_noise=False, recalibrate=False, server_data=server)
    return up.FedBNR("distill", random_state=seed, **options)


METHODS: dict[str, Callable[..., Any]] = {
    "FedBNR exact": exact,
    "FedBNR as printed": average,
    "FedBNR average, server noise": average_server,
    "FedBNR-KD as printed": distill,
}


def run(name: str, clients: int, seed: int, method: str) -> dict[str, Any]:
    """Fit and judge: at the validation optimum, and as the thesis does at the best round for the test rows."""
    split = protocol.split(name, seed, clients)
    model = METHODS[method](name, split, seed)
    rows = ~split.held if getattr(model, "server_data", None) is not None else None
    fed = up.federate(split.clients(rows), threads=1)
    start, curve = time.process_time(), list(watch(model, fed, split))
    judged = judge(model, split)
    return {
        "set": name, "clients": clients, "seed": seed, "method": method, **judged,
        "rmse_min": min([row["test_rmse"] for row in curve], default=judged["rmse"]),
        "rounds": len(model.history_), "best_round": getattr(model, "best_round_", 0), "sums": getattr(model, "n_sums_", 0),
        "sums_to_best": 2 + sum(row.get("sums", 1) for row in model.history_[: getattr(model, "best_round_", 0)]),
        "seconds": time.process_time() - start, "curve": curve,
    }  # fmt: skip


def watch(model: Any, fed: Any, split: protocol.Split) -> Iterator[dict[str, float]]:
    """The error on the test rows before every round of a global model; the sums that this takes are not the model's."""
    sums = 2
    moments = model.rounds(fed)
    for moment in moments:
        row = moment.history[-1] if moment.history else {}
        sums += row.get("sums", 0)
        if isinstance(model, LastLayer) and not moment.done:
            yield {"sums": sums + 1, "test_rmse": metrics.rmse(split.y_test, glance(model, fed, moment.state, split.x_test))}


def glance(model: Any, fed: Any, state: Any, x: np.ndarray) -> np.ndarray:
    """Predictions of the kernel that the next round will look at."""
    from unpooled.maths import bayes_linear
    from unpooled.maths.feature_maps import features
    from unpooled.models.last_layer import standard

    journal = fed.journal.round
    stats = tree.map(to_numpy, fed.sum(statistics.using(**model._asks()), state.design))
    fed.journal.round = journal  # a look leaves no trace in the clients' draws
    scaling = state.design.scaling
    post = model._posterior(stats) if model.kernel == "exact" else model._posterior(stats, state)
    mean, _ = bayes_linear.predict(post, features(model._spec(), state.design.kernel, standard(scaling, x)))
    return (scaling.y_mean + scaling.y_scale * mean)[:, 0]


def judge(model: Any, split: protocol.Split) -> dict[str, float]:
    """Errors and calibration on the test rows; of a method with many local models, the mean over them."""
    found = [judge_one(view, split) for view in getattr(model, "views", lambda: [model])()]
    return {key: float(np.mean([row[key] for row in found])) for key in found[0]}


def judge_one(model: Any, split: protocol.Split) -> dict[str, float]:
    x, y = split.x_test, split.y_test
    if not hasattr(model, "interval"):
        return {"rmse": metrics.rmse(y, model.predict(x))}
    mean, std = model.predict(x, return_std=True)
    raw = metrics.calibration(y, metrics.normal_interval(mean, std))
    ours = metrics.calibration(y, lambda level: model.interval(x, level))
    lower, upper = model.interval(x, 0.9)
    return {
        "rmse": metrics.rmse(y, mean), "nlpd": metrics.nlpd(y, mean, std),
        "ece": ours.ece, "mce": ours.mce, "brier": ours.brier, "ece_raw": raw.ece, "mce_raw": raw.mce, "brier_raw": raw.brier,
        "cover90": metrics.coverage(y, lower, upper), "width90": metrics.width(lower, upper),
    }  # fmt: skip


# ---- many runs ----


def finished(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_all(wanted: list[tuple[str, int, int, str]], path: Path, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The results of all wanted runs, those that the file lacks run now."""
    done = {(r["set"], r["clients"], r["seed"], r["method"]): r for r in finished(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for key in wanted:
        if key not in done:
            done[key] = run(*key)
            say(f"{key}: RMSE {done[key]['rmse']:.4f} in {done[key]['seconds']:.0f} s")
            with path.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
    return [done[key] for key in wanted]
