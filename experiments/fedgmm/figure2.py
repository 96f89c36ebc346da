"""Figure 2: log P(x) sets an unseen digit apart, log P(y | x) sets wrong labels apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from _methods import row
from _mnist import by_label, features
from sklearn.metrics import roc_auc_score

import unpooled as up
from unpooled.data import shared

SEEDS = 1
DIFFERS = (
    "the encoder is EfficientNet-Lite0 instead of ResNet18, learners are linear on its features; 10 Gaussians; the digit 1, which has no "
    "class, is given class 0; the table is ours."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    strange, wrong = [], []
    for seed in range(seeds):
        train, normal, y, ones = data(small, seed, say)
        options = {"batch_size": 128, "momentum": 0.9, "lr": 0.03, "max_iter": 20 if small else 100}
        model = up.FedGMM(
            10, 3, embedding=48, starts=("tied",), warmup=8, reg_covar=1e-3, random_state=seed, **options
        ).fit(train)
        others = np.random.default_rng(seed).permutation(y)
        labels = {"normal": y, "labels permuted": others, "digit 1": np.zeros(len(ones), dtype=int)}
        points = {
            name: (
                model.log_density(ones if name == "digit 1" else normal),
                model.log_conditional(ones if name == "digit 1" else normal, label),
            )
            for name, label in labels.items()
        }
        moved = others != y
        strange.append(apart(points["normal"][0], points["digit 1"][0]))
        wrong.append(apart(points["normal"][1], points["labels permuted"][1][moved]))
        plot(points, out / "figure2.png")
    return [
        row("unseen digit by log P(x)", strange, None, metric="AUROC"),
        row("wrong label by log P(y | x)", wrong, None, metric="AUROC"),
    ]


def data(small: bool, seed: int, say: Callable[[str], None]) -> tuple:
    """(clients without the digit 1, other test rows and labels, test rows of the digit 1)."""
    mnist, rng = shared.mnist(), np.random.default_rng(seed)
    n, m = (2500, 400) if small else (25_000, 4000)
    rest, kept = np.flatnonzero(mnist.y_train != 1), np.flatnonzero(mnist.y_test != 1)
    i, j, ones = (
        rng.choice(rest, n, replace=False),
        rng.choice(kept, m, replace=False),
        np.flatnonzero(mnist.y_test == 1)[: m // 4],
    )
    x, a, b = (features(part, say) for part in (mnist.x_train[i], mnist.x_test[j], mnist.x_test[ones]))
    clients = by_label(x, mnist.y_train[i].astype(int), 10 if small else 50, seed)
    return clients, a, mnist.y_test[j].astype(int), b


def apart(high: np.ndarray, low: np.ndarray) -> float:
    return float(roc_auc_score(np.r_[np.ones(len(high)), np.zeros(len(low))], np.r_[high, low]))


def plot(points: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 4), layout="constrained")
    axes = figure.subplots()
    for (name, (x, y)), colour in zip(points.items(), ("tab:cyan", "tab:red", "tab:orange")):
        axes.scatter(x, y, s=4, alpha=0.5, label=name, color=colour)
    axes.set(xlabel="log P(x)", ylabel="log P(y | x)")
    axes.legend()
    figure.savefig(path, dpi=130)
