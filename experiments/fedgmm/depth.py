"""How deep to read the encoder: its middle sees novelty that its last blocks miss (ours; where the encoder's default comes from)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _images as images
import numpy as np
from _methods import PAPER_GMM, row, together
from _mnist import apart, by_label, features, scaled
from _novel import strange
from _picture import points

import unpooled as up
from unpooled.datasets import shared
from unpooled.datasets.encoder import MIDDLE

SEEDS = 1
DIFFERS = (
    "the paper has no such table: training images of MNIST alone, as in table4, and seven kinds of novelty, none of them reported. "
    "AUROC of log P(x) under FedGMM's Gaussians (60, small 10) over 48 axes and the length of the rest."
)
CHANNELS = {2: 24, 4: 40, 7: 80, 10: 112, 14: 192, 15: 320}  # of the last block of each stage
DEPTHS = {f"block {b}": (b,) for b in CHANNELS} | {"blocks 4, 7, 10": MIDDLE}


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    n, m = (2500, 300) if small else (12_000, 1000)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in DEPTHS}
    for seed in range(100, 100 + seeds):
        train, y, known = data(n, m, seed)
        kinds = strange(known)
        parts = [features(part, blocks=tuple(CHANNELS)) for part in (train, known, *kinds.values())]
        for name, blocks in DEPTHS.items():
            x, home, *others = scaled(*(of_blocks(part, blocks) for part in parts))
            score = density(by_label(x, y, 10, seed), 10 if small else 60, seed)
            found[name].append({kind: apart(score(home), score(other)) for kind, other in zip(kinds, others)})
            say(f"{name}: {100 * np.mean(list(found[name][-1].values())):.2f}")
    table = []
    for name, runs in found.items():
        each = {kind: 100 * float(np.mean([r[kind] for r in runs])) for kind in runs[0]}
        table.append(row(name, [float(np.mean(list(r.values()))) for r in runs], None, **each))
    return points(table, out / "depth.png", unit="AUROC, mean of seven kinds, %")


def of_blocks(x: np.ndarray, blocks: tuple[int, ...]) -> np.ndarray:
    """The columns of features that come from these blocks."""
    return x[:, np.isin(np.repeat(list(CHANNELS), list(CHANNELS.values())), blocks)]


def data(n: int, m: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(training images, their labels, other training images), as in table4."""
    mnist = shared.mnist()
    order = np.random.default_rng(seed).permutation(60_000)
    i, j = order[:n], order[n : n + m]
    train = images.shift_by_halves(mnist.x_train[i], mnist.y_train[i], seed)
    return train.x, train.y, images.shift_by_halves(mnist.x_train[j], mnist.y_train[j], seed).x


def density(clients: dict, gaussians: int, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    axes = min(48, next(iter(clients.values()))[0].shape[1])
    how = {"embedding": axes, "starts": ("untied",), "warmup": 20, "max_iter": 22, "reg_covar": 0.02, "lr": 0.01}
    return up.FedGMM(gaussians, 1, random_state=seed, **PAPER_GMM | how).fit(together(clients)).log_density
