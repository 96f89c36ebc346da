"""Table 2, CIFAR-10: FedGMM is the most accurate of eight methods on photographs whose look and labels shift (paper: 52.96 %)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from _cells import Book, Key, Measure, grouped
from _expected import expected
from _methods import METHODS, PAPER_GMM, accuracy, best_rate, device, image_cells, row, together, tuning
from _mnist import by_label, features, scaled
from _picture import points

import unpooled as up
from unpooled.datasets import classification, encoder, images, shared

SEEDS = 3
TWO = "FedGMM 2x2"
CHOOSE = " (clients choose)"  # personalize="auto"
CHOOSING = tuple(name + CHOOSE for name in ("FedGMM", "FedAvg", "FedEM"))
CLIENTS = 80
ENCODED = {"side": 128, "blocks": encoder.LATE}
DIFFERS = (
    "all methods see 512 features of a frozen EfficientNet-Lite0 trained on ImageNet and train an mlp of 64 hidden units on them, where "
    "the paper trains a MobileNet-v2 on the images and gives a frozen ResNet18's features to the Gaussians alone; these see 48 principal "
    "axes of the features, as in the paper, and the length of the rest. FedGMM's learners take FedEM's rate. 'Clients choose' is the "
    "library's default, by which every client chooses between the shared model, "
    "its own version of it and a local one. Small: 1,500 images."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    book = Book(out, say)
    book.all(cells(small, seeds))
    return points(lines(book), out / "table2_cifar10.png")


def lines(book: Book) -> list[dict]:
    """The table of what has been measured."""
    groups = grouped(book.so_far(), "method")
    return [
        row(method, [f["accuracy"] for f in found], expected("table2", "cifar10", method), rate=found[0]["rate"])
        | {"seeds": len(found)}
        for (method,), found in groups.items()
    ]


def cells(small: bool, seeds: int) -> Iterator[tuple[Key, Measure]]:
    yield from image_cells(rates, _measure, small, seeds)
    for method in () if small else (TWO, *CHOOSING):
        for seed in range(seeds):
            yield {"method": method, "seed": seed}, partial(_measure, method, seed, small)


def rates(method: str, small: bool) -> list[tuple[Key, Measure]]:
    """FedGMM's learners are trained as FedEM's are, and take its rate."""
    plain = method.removesuffix(CHOOSE)
    learner = "FedEM" if plain in ("FedGMM", TWO) else plain
    return tuning({"method": learner}, learner, lambda: data(small, 0)[:2], settings(small, 0, learner), small, fit)


def _measure(method: str, seed: int, small: bool, book: Book) -> dict[str, float]:
    lr, (train, _, test) = best_rate(book, rates(method, small)), data(small, seed)
    model = fit(method, train, settings(small, seed, method) | {"lr": lr})
    by_client = {name: float((model.predict(x, client=name) == y).mean()) for name, (x, y) in test.items() if len(y)}
    return {"accuracy": accuracy(model, test)[0], "rate": lr, "by client": by_client}


@lru_cache(1)
def data(small: bool, seed: int) -> tuple:
    """(train, valid, test) by client: half of the images turned, mirrored, inverted and relabelled, then encoded."""
    found, rng = shared.cifar10(), np.random.default_rng(seed)
    x, y = np.concatenate([found.x_train, found.x_test]), np.concatenate([found.y_train, found.y_test])
    if small:
        chosen = rng.permutation(len(y))[:1500]
        x, y = x[chosen], y[chosen]
    shifted = images.shift(x, y, random_state=seed)
    plain, turned = (features(part, **ENCODED) for part in (x, images.turn(x)))
    rows = np.where(shifted.moved[:, None], turned, plain)
    clients = by_label(scaled(rows)[0].astype(np.float32), shifted.y, 10 if small else CLIENTS, seed)
    return classification.split(clients, random_state=seed)


def settings(small: bool, seed: int, name: str) -> dict:
    own = {"embedding": 48, "reg_covar": 1e-3, "starts": ("tied",)} if name.startswith("FedGMM") else {}
    own |= {"personalize": "auto"} if name.endswith(CHOOSE) else {}
    rounds = {"batch_size": 128, "momentum": 0.9, "max_iter": 20 if small else 200, "random_state": seed}
    return {"learner": "mlp", "hidden": (64,), "classes": range(10), "device": device(), **rounds, **own}


def fit(name: str, train: dict, options: dict):
    name = name.removesuffix(CHOOSE)
    sizes = {"FedGMM": (3, 3), TWO: (2, 2)}.get(name)
    model = up.FedGMM(*sizes, **PAPER_GMM | options) if sizes else METHODS[name](**options)
    return model.fit(together(train))
