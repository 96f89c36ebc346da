"""Table 5: a client never seen in training is served as well as a trained one, for the price of fitting its weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _methods import GRID, METHODS, SMALL_GRID, accuracy, row, tuned

from unpooled.data import classification

SEEDS = 5
DIFFERS = (
    "the paper has FEMNIST and CIFAR; here it is the synthetic data, both generators, whose Bayes rule is known. 80 % of the "
    "clients train; of an unseen client's rows half adapt and half test, as in the paper. FedAvg has nothing to adapt."
)
ADAPTS = ("FedAvg", "FedAvg+", "FedEM", "FedGMM")


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    clients, rows, rounds = (40, 500, 40) if small else (300, 3000, 200)
    table = []
    for generator in (classification.paper, classification.public):
        for name in ADAPTS:
            first = generator(clients, rows, random_state=0)
            options = {"batch_size": 128, "momentum": 0.9, "max_iter": rounds, "random_state": 0}
            lr = tuned(name, first.train, first.valid, options, min(rounds, 40), SMALL_GRID if small else GRID)
            found = [
                _one(generator(clients, rows, random_state=seed), name, options | {"lr": lr, "random_state": seed})
                for seed in range(seeds)
            ]
            seen, unseen, bayes, cost = (np.array(column) for column in zip(*found))
            more = {
                "generator": generator.__name__,
                "trained clients": 100 * float(seen.mean()),
                "Bayes rule, unseen": 100 * float(bayes.mean()),
                "adaptation, % of training CPU": 100 * float(cost.mean()),
            }
            table.append(row(name, list(unseen), None, **more))
            say(f"{generator.__name__}: {name} unseen {table[-1]['ours']:.2f}, trained {more['trained clients']:.2f}")
    return table


def _one(task: classification.Task, name: str, options: dict) -> tuple[float, float, float, float]:
    """(accuracy of trained clients, of unseen ones, of the Bayes rule on those, CPU of one adaptation by that of the training)."""
    names = list(task.train)
    old, new = names[: int(0.8 * len(names))], names[int(0.8 * len(names)) :]
    start = time.process_time()
    model = METHODS[name](**options).fit({n: task.train[n] for n in old})
    training = time.process_time() - start
    seen = accuracy(model, {n: task.test[n] for n in old})[0]
    unseen, best, spent = [], [], 0.0
    for n in new:
        x, y = (np.concatenate(parts) for parts in zip(task.train[n], task.valid[n], task.test[n]))
        half = len(y) // 2
        start = time.process_time()
        own = model.adapt(x[:half], y[:half]) if hasattr(model, "adapt") else model
        spent += time.process_time() - start
        unseen.append(own.score(x[half:], y[half:]))
        best.append((task.bayes(x[half:], n) == y[half:]).mean())
    return seen, float(np.mean(unseen)), float(np.mean(best)), spent / len(new) / training
