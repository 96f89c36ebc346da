"""Table 4's question on CIFAR-10: FedGMM's density tells novel photographs from known ones better than classifiers' confidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import _images as images
import numpy as np
from _cells import Book, Key, Measure, grouped
from _methods import METHODS, best_rate, row, together, tuning
from _mnist import by_label, features, fedgmm, scaled, settings
from table4 import METRICS, judge, score, split

from unpooled.datasets import shared

SEEDS = 3
ONE = "one Gaussian"
COMPARED = ("FedGMM", ONE, "FedEM", "FedAvg", "Local", "FedAvg+", "FedProx", "ClusteredFL")
DIFFERS = (
    "the paper has MNIST alone; all is as in table4, with photographs in colour. 'one Gaussian' is FedGMM's density with a single "
    "component. Every rate is FedEM's."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    book = Book(out, say)
    book.all(cells(small, seeds))
    return lines(book)


def lines(book: Book) -> list[dict]:
    """The table of what has been measured."""
    groups = grouped(book.so_far(), "method")
    return [
        row(method, [f[metric] for f in found], None, metric=metric)
        for (method,), found in groups.items()
        for metric in METRICS
    ]


def cells(small: bool, seeds: int) -> Iterator[tuple[Key, Measure]]:
    for method in COMPARED:
        yield from rates(method, small)
        for seed in range(seeds):
            yield {"method": method, "seed": seed}, partial(_measure, method, seed, small)


def rates(method: str, small: bool) -> list[tuple[Key, Measure]]:
    """All learners, by SGD here, take the rate of FedEM's."""
    learner = "FedEM"
    return tuning({"method": learner}, learner, lambda: split(data(small, 0)[0]), settings(small, 0), small)


def _measure(method: str, seed: int, small: bool, book: Book) -> dict[str, float]:
    lr = best_rate(book, rates(method, small))
    train, known, novel = data(small, seed)
    options = settings(small, seed) | {"lr": lr}
    gaussians = {"FedGMM": None, ONE: 1}
    made = fedgmm(small, gaussians[method], **options) if method in gaussians else METHODS[method](**options)
    model = made.fit(together(train))
    return dict(zip(METRICS, judge(score(model, known), score(model, novel)))) | {"rate": lr}


@lru_cache(1)
def data(small: bool, seed: int) -> tuple[dict, np.ndarray, np.ndarray]:
    """(clients of appendix C.3, known test rows, the same photographs made novel)."""
    found, rng = shared.cifar10(), np.random.default_rng(seed)
    n, m = (1500, 300) if small else (25_000, 5000)
    i, j = rng.choice(len(found.y_train), n, replace=False), rng.choice(len(found.y_test), m, replace=False)
    train = images.shift_by_halves(found.x_train[i], found.y_train[i], seed)
    test = images.shift_by_halves(found.x_test[j], found.y_test[j], seed)
    x, known, novel = scaled(*(features(part) for part in (train.x, test.x, images.novel(test.x))))
    return by_label(x, train.y, 10 if small else 50, seed), known, novel
