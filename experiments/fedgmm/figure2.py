"""Figure 2: log P(x) sets an unseen digit apart, log P(y | x) sets wrong labels apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from _methods import row, together
from _mnist import apart, by_label, features, fedgmm, scaled, settings

from unpooled.datasets import shared

SEEDS = 1
DIFFERS = (
    "the encoder is an EfficientNet-Lite0 read at its middle instead of a ResNet18, linear learners on its features; 120 Gaussians over "
    "48 axes and the length of the rest, small 10; labels are altered by a permutation of the classes that leaves none where it was; "
    "the digit 1, which has no class, "
    "is given class 0; the table is ours."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    strange, wrong = [], []
    for seed in range(seeds):
        train, normal, y, ones = data(small, seed)
        model = fedgmm(small, lr=0.03, **settings(small, seed)).fit(together(train))
        rows = {
            "normal": (normal, y),
            "labels altered": (normal, altered(y, seed)),
            "digit 1": (ones, np.zeros(len(ones), int)),
        }
        points = {name: (model.log_density(x), model.log_conditional(x, label)) for name, (x, label) in rows.items()}
        strange.append(apart(points["normal"][0], points["digit 1"][0]))
        wrong.append(apart(points["normal"][1], points["labels altered"][1]))
        say(f"seed {seed}: digit 1 {100 * strange[-1]:.2f}, labels {100 * wrong[-1]:.2f}")
        plot(points, out / "figure2.png")
    return [
        row("unseen digit by log P(x)", strange, None, metric="AUROC"),
        row("wrong label by log P(y given x)", wrong, None, metric="AUROC"),
    ]


def altered(y: np.ndarray, seed: int) -> np.ndarray:
    """Classes moved round a random circle."""
    circle = np.random.default_rng(seed).permutation(np.unique(y))
    return np.roll(circle, 1)[np.argsort(circle)][np.searchsorted(np.unique(y), y)]


def data(small: bool, seed: int) -> tuple:
    """(clients without the digit 1, other test rows and labels, test rows of the digit 1)."""
    mnist, rng = shared.mnist(), np.random.default_rng(seed)
    n, m = (2500, 400) if small else (25_000, 4000)
    rest, kept = np.flatnonzero(mnist.y_train != 1), np.flatnonzero(mnist.y_test != 1)
    i, j, ones = (
        rng.choice(rest, n, replace=False),
        rng.choice(kept, m, replace=False),
        np.flatnonzero(mnist.y_test == 1)[: m // 4],
    )
    x, a, b = scaled(*(features(part) for part in (mnist.x_train[i], mnist.x_test[j], mnist.x_test[ones])))
    clients = by_label(x, mnist.y_train[i].astype(int), 10 if small else 50, seed)
    return clients, a, mnist.y_test[j].astype(int), b


def plot(points: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 4), layout="constrained")
    axes = figure.subplots()
    for (name, (x, y)), colour in zip(points.items(), ("tab:cyan", "tab:red", "tab:orange")):
        axes.scatter(x, y, s=4, alpha=0.5, label=name, color=colour)
    axes.set(xlabel="log P(x)", ylabel="log P(y | x)")
    axes.legend()
    figure.savefig(path, dpi=130)
