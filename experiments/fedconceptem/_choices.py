"""What the prior of the candidates does to what clients of few rows keep: the same networks, weighted as before and as now.

    python experiments/fedconceptem/_choices.py --seeds 200 201 [--settings skewed] [--data mnist]

Images of MNIST, Fashion-MNIST and EMNIST (twelve letters) as 60 principal components, at most 60 clients, an mlp, 100 rounds. Every client
is tested with about 1,500 images like its own, beside the mean of two networks that it trained alone from two random starts. Each run is
two lines in results/choices/measurements.jsonl; table.md has the sums over runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import _alone
import numpy as np

from unpooled.commands.reproduce import markdown
from unpooled.data.federate import federate
from unpooled.datasets import shared, shift
from unpooled.learners import candidates, judging, personal
from unpooled.saving import estimator_class

RESULTS = Path(__file__).parent / "results" / "choices"
CONCEPTS = {"concepts": (0.5, 0.25, 0.25), "corrupted": (0.4, 0.2, 0.2)}
ALIKE = {"concepts": (1.0,), "alpha": np.inf}
SETTINGS: dict[str, dict] = {
    "skewed": CONCEPTS | {"skew": "lda_prior"},
    "concepts": CONCEPTS,
    "corrupted": ALIKE | {"corrupted": (0.5,)},
    "alike": ALIKE | {"corrupted": (0.0,)},
}
ROWS = {"mnist": 120, "fashion_mnist": 150, "emnist": 70}  # of a client
CLIENTS, AXES, LETTERS, TESTS = 60, 60, 12, 1500
TRAINING = {"learner": "mlp", "hidden": (64,), "batch_size": 32, "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
TRAINING |= {"schedule": "cosine", "max_iter": 100}
BEFORE = {"plain": 0.35, "corrected": 0.4, "tuned": 0.1, "alone": 0.15, "constant": 0.02}  # equal within a kind
STARTS = (0, 10_000)  # added to the seed of clients that train alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--data", nargs="*", default=list(ROWS))
    args = parser.parse_args()
    file = RESULTS / "measurements.jsonl"
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines = file.read_text().splitlines() if file.exists() else []
    done = [json.loads(line) for line in lines]
    known = {(one["data"], one["setting"], one["seed"]) for one in done}
    wanted = [(data, setting, seed) for seed in args.seeds for setting in args.settings for data in args.data]
    for job in wanted:
        for found in measure(*job) if job not in known else ():
            done.append(found)
            print({name: value for name, value in found.items() if name != "gains"}, flush=True)
            with file.open("a") as out:
                out.write(json.dumps(found) + "\n")
    (RESULTS / "table.md").write_text(f"{__doc__.splitlines()[0]}\n\n{markdown(table(done))}\n")


def measure(data: str, setting: str, seed: int) -> Iterator[dict]:
    """One line for each prior."""
    x, y, x_test, y_test = images(data)
    clients = min(CLIENTS, len(y) // ROWS[data])
    made = shift.build(x, y, clients, rows=ROWS[data], random_state=seed, **SETTINGS[setting])
    features = components(x)
    made = made._replace(train={name: (features(rows), labels) for name, (rows, labels) in made.train.items()})
    tests = _alone.Tests(x_test, y_test, features(_flat(x_test)), features, TESTS)
    options = TRAINING | {"classes": list(range(int(y.max()) + 1)), "random_state": seed}
    alone = [scores(_fit("baselines.LocalOnly", made, _start(options, start)), made, tests) for start in STARTS]
    several = {"n_concepts": 3, "extra": 3} if len(made.maps) > 1 else {}
    model, judged = choosing("FedConceptEM" if several else "baselines.FedAvg", made, options | several)
    for name, plan in priors(judged[0][1].plan).items():
        choose_again(model, judged, plan)
        kept = scores(model, made, tests)
        yield {"data": data, "setting": setting, "seed": seed, "prior": name} | compared(kept, np.mean(alone, 0))


def images(data: str) -> tuple[np.ndarray, ...]:
    """(x, y, x_test, y_test); of EMNIST the letters with the most images, four sevenths of them to train with."""
    if data != "emnist":
        return tuple(getattr(shared, data)())
    found = shared.emnist()
    counts = np.bincount(found.y) * (np.char.isalpha(found.classes))
    letters = np.sort(np.argsort(-counts)[:LETTERS])
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(np.isin(found.y, letters)))
    x, y, cut = found.x[chosen], np.searchsorted(letters, found.y[chosen]), ROWS[data] * CLIENTS
    return x[:cut], y[:cut], x[cut:], y[cut:]


def components(x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Flat images along principal axes of 3,000 of them, in units of their deviations."""
    flat = _flat(x[:3000])
    mean = flat.mean(0)
    _, spread, axes = np.linalg.svd(flat - mean, full_matrices=False)
    project = (axes[:AXES] / spread[:AXES, None]).T * np.sqrt(len(flat))
    return lambda rows: ((rows - mean) @ project).astype(np.float32)


def _flat(x: np.ndarray) -> np.ndarray:
    return (x / 255).reshape(len(x), -1).astype(np.float32)


def _start(options: dict, start: int) -> dict:
    return options | {"personalize": "none", "random_state": options["random_state"] + start}


def _fit(name: str, made: shift.Shifted, options: dict) -> Any:
    return estimator_class(name)(**options).fit(federate(made.train, stack_cells=4_000_000, threads=1))


def choosing(name: str, made: shift.Shifted, options: dict) -> tuple[Any, list[tuple[list[str], judging.Judged]]]:
    """A model whose clients chose, and what they chose by, with their names."""
    judged, keep = [], personal.keep

    def remember(learner: Any, clients: list, found: judging.Judged, down: Any = None) -> None:
        judged.append(([client.name for client in clients], found))
        keep(learner, clients, found, down)

    with mock.patch.object(personal, "keep", remember):
        model = _fit(name, made, options | {"personalize": "auto"})
    return model, judged


def priors(plan: candidates.Candidates) -> dict[str, candidates.Candidates]:
    """The candidates with the prior as it was, and as it is."""
    each = [BEFORE[kind] / (plan.kind == kind).sum() for kind in plan.kind]
    return {"before": plan._replace(prior=np.array(each) / np.sum(each)), "now": plan}


def choose_again(model: Any, judged: list[tuple[list[str], judging.Judged]], plan: candidates.Candidates) -> None:
    """Let the clients of a fitted model choose by another prior."""
    for names, found in judged:
        for who, group in found.groups:
            for i, kept in zip(who, judging.chosen(plan, group, None)):
                model.clients_[names[i]] |= {f"kept_{name}": value for name, value in kept.items()}


def scores(model: Any, made: shift.Shifted, tests: _alone.Tests) -> np.ndarray:  # (clients, 2)
    """Accuracy and log-loss of each client's own model, weighted by its label shares."""
    out = []
    for name in made.train:
        x, classes = tests.rows(made, name)
        y, shares = made.maps[made.concepts[name]][classes], _alone.label_shares(made, name)
        weights = (shares / np.bincount(y, minlength=len(shares)).clip(min=1))[y]
        proba = model.predict_proba(x, client=name)
        losses = -np.log(proba[np.arange(len(y)), y].clip(min=1e-13))
        out.append(np.average([proba.argmax(1) == y, losses], axis=1, weights=weights))
    return np.array(out)


def compared(kept: np.ndarray, alone: np.ndarray) -> dict:
    """Means over clients, and how many points each of them gains."""
    means = {"accuracy": kept[:, 0], "log-loss": kept[:, 1], "alone": alone[:, 0], "log-loss alone": alone[:, 1]}
    gains = 100 * (kept - alone)[:, 0]
    return {name: float(value.mean()) for name, value in means.items()} | {"gains": np.round(gains, 2).tolist()}


def table(done: list[dict]) -> list[dict]:
    """A row for each setting and prior, over all data and seeds."""
    groups: dict[tuple, list[dict]] = {}
    for one in done:
        groups.setdefault((one["setting"], one["prior"]), []).append(one)
    return [_row(*key, found) for key, found in sorted(groups.items())]


def _row(setting: str, prior: str, found: list[dict]) -> dict:
    gains = np.concatenate([one["gains"] for one in found])
    means = {name: float(np.mean([one[name] for one in found])) for name in ("accuracy", "log-loss", "alone")}
    row = {"setting": setting, "prior": prior, "runs": len(found), "clients": len(gains)} | means
    return row | {"lose over 1 point": int((gains < -1).sum()), "worst client": float(gains.min())}


if __name__ == "__main__":
    main()
