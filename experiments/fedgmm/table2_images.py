"""Table 2, images: FedGMM is the most accurate of eight methods on handwriting whose look and labels shift (paper: 79.49 %, FEMNIST)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import _images as images
import numpy as np
from _cells import Book, Key, Measure, grouped
from _expected import expected
from _methods import METHODS, PAPER_GMM, accuracy, best_rate, device, image_cells, row, together, tuning
from _mnist import by_label
from _picture import points

import unpooled as up
from unpooled.datasets import classification, shared

SEEDS = 3
MANY = "FedGMM 32x2"
DIFFERS = (
    "EMNIST (30,000 images, 62 classes, no writers) over 100 clients by Dirichlet(0.4) stands in for FEMNIST: the Gaussians see 48 "
    "principal axes of the pixels and the length of the rest, no encoder, and its learners take FedEM's rate. FedGMM has 2 Gaussians "
    "and 2 learners; pixels are no two Gaussians, so it is there with 32 as well (in full only). Meant for a GPU: the small version "
    "takes 1,500 images, ten classes and an mlp."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    groups = grouped(Book(out, say).all(cells(small, seeds)), "method")
    table = [
        row(method, [f["accuracy"] for f in found], expected("table2", "femnist", method), rate=found[0]["rate"])
        for (method,), found in groups.items()
    ]
    return points(table, out / "table2_images.png")


def cells(small: bool, seeds: int) -> Iterator[tuple[Key, Measure]]:
    yield from image_cells(rates, _measure, small, seeds)
    for seed in range(0 if small else seeds):
        yield {"method": MANY, "seed": seed}, partial(_measure, MANY, seed, small)


def rates(method: str, small: bool) -> list[tuple[Key, Measure]]:
    """FedGMM's learners are trained as FedEM's are, and take its rate."""
    learner = "FedEM" if method in ("FedGMM", MANY) else method
    return tuning({"method": learner}, learner, lambda: data(small, 0)[:2], settings(small, 0, learner), small, fit)


def _measure(method: str, seed: int, small: bool, book: Book) -> dict[str, float]:
    lr, (train, _, test) = best_rate(book, rates(method, small)), data(small, seed)
    model = fit(method, train, settings(small, seed, method) | {"lr": lr})
    return {"accuracy": accuracy(model, test)[0], "rate": lr}


@lru_cache(1)
def data(small: bool, seed: int) -> tuple:
    """(train, valid, test) by client: half of the images turned, mirrored, inverted and relabelled."""
    emnist, rng = shared.emnist(), np.random.default_rng(seed)
    chosen = rng.permutation(np.flatnonzero(emnist.y < 10))[:1500] if small else rng.permutation(len(emnist.y))
    shifted = images.shift(emnist.x[chosen], emnist.y[chosen], random_state=seed)
    return classification.split(
        by_label(images.as_rows(shifted.x), shifted.y, 10 if small else 100, seed), random_state=seed
    )


def settings(small: bool, seed: int, name: str) -> dict:
    shared_by_all = {"batch_size": 128, "momentum": 0.9, "max_iter": 20 if small else 200, "random_state": seed}
    learner = {"learner": "mlp", "hidden": (64,)} if small else {"learner": "cnn"}
    own = {"embedding": 48, "reg_covar": 1e-3, "starts": ("tied",)} if name in ("FedGMM", MANY) else {}
    return {
        **shared_by_all,
        **learner,
        **own,
        "classes": range(10 if small else 62),
        "device": None if small else device(),
    }


def fit(name: str, train: dict, options: dict):
    gaussians = {"FedGMM": 2, MANY: 32}.get(name)
    model = up.FedGMM(gaussians, 2, **PAPER_GMM | options) if gaussians else METHODS[name](**options)
    return model.fit(together(train))
