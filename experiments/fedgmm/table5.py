"""Table 5: a client never seen in training is served as well as a trained one, for the price of fitting its weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from _cells import Book, Key, Measure, grouped
from _methods import METHODS, UNTUNED, Rows, accuracy, best_rate, row, together, tuning
from _picture import points
from table2 import GENERATORS, settings, task

SEEDS = 5
DIFFERS = (
    "the paper has FEMNIST and CIFAR; here it is the synthetic data of table2, both generators, whose Bayes rule is known. 80 % of the "
    "clients train, and choose the rate; of an unseen client's rows half adapt and half test, as in the paper. FedAvg has nothing to adapt."
)
ADAPTS = ("FedAvg", "FedAvg+", "FedEM", "FedGMM")


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    table = []
    for (generator, method), found in grouped(Book(out, say).all(cells(small, seeds)), "generator", "method").items():
        percent = {name: 100 * float(np.mean([f[name] for f in found])) for name in found[0]}
        more = {
            "generator": generator,
            "trained clients": percent["seen"],
            "Bayes rule, unseen": percent["bayes"],
            "adaptation, % of training CPU": percent["cost"],
        }
        table.append(row(method, [f["unseen"] for f in found], None, **more))
    return points(table, out / "table5.png", "generator", "accuracy of unseen clients, %")


def cells(small: bool, seeds: int) -> Iterator[tuple[Key, Measure]]:
    """(generator, method, tune) of every rate, (generator, method, seed) with the best of them."""
    for generator in GENERATORS:
        for method in ADAPTS:
            yield from rates(generator, method, small)
            for seed in range(seeds):
                key = {"generator": generator, "method": method, "seed": seed}
                yield key, partial(_measure, generator, method, seed, small)


def rates(generator: str, method: str, small: bool) -> list[tuple[Key, Measure]]:
    def rows() -> tuple[Rows, Rows]:
        first = task(generator, small, 0)
        old, _ = _halves(list(first.train))
        return {n: first.train[n] for n in old}, {n: first.valid[n] for n in old}

    if method in UNTUNED:
        return []
    return tuning({"generator": generator, "method": method}, method, rows, settings(small, method), small)


def _halves(names: list[str]) -> tuple[list[str], list[str]]:
    """(clients that train, clients that come later)."""
    cut = int(0.8 * len(names))
    return names[:cut], names[cut:]


def _measure(generator: str, method: str, seed: int, small: bool, book: Book) -> dict[str, float]:
    """Accuracy of trained clients, of unseen ones, of the Bayes rule on those; CPU of one adaptation by that of the training."""
    lr, data = best_rate(book, rates(generator, method, small)), task(generator, small, seed)
    old, new = _halves(list(data.train))
    start = time.process_time()
    model = METHODS[method](**settings(small, method) | {"lr": lr, "random_state": seed})
    model.fit(together({n: data.train[n] for n in old}))
    training = time.process_time() - start
    unseen, best, spent = [], [], 0.0
    for n in new:
        x, y = (np.concatenate(parts) for parts in zip(data.train[n], data.valid[n], data.test[n]))
        half = len(y) // 2
        start = time.process_time()
        own = model.adapt(x[:half], y[:half]) if hasattr(model, "adapt") else model
        spent += time.process_time() - start
        unseen.append(own.score(x[half:], y[half:]))
        best.append((data.bayes(x[half:], n) == y[half:]).mean())
    return {
        "seen": accuracy(model, {n: data.test[n] for n in old})[0],
        "unseen": float(np.mean(unseen)),
        "bayes": float(np.mean(best)),
        "cost": spent / len(new) / training,
    }
