"""How many Gaussians tell shifted images from others: two do not, sixteen do (ours; where table2_images' 32 come from)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _images as images
import numpy as np
from _methods import PAPER_GMM, row, together
from _mnist import by_label
from _picture import points

import unpooled as up
from unpooled.datasets import shared
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm.embedding import Embedding, embed
from unpooled.models.fedgmm.weighted_e_step import log_densities

SEEDS = 1
DIFFERS = (
    "the paper has no such table: EMNIST as in table2_images but another seed, linear learners, 14 rounds. Of rows that were held "
    "out: the share whose Gaussian's learner is the one of its kind (shifted or not), and the mean log-likelihood."
)
NUMBERS = (2, 4, 8, 16, 32)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    numbers, table = NUMBERS[:3] if small else NUMBERS, []
    for k in numbers:
        found = [measure(k, 3000 if small else 27_000, seed) for seed in range(100, 100 + seeds)]
        say(f"{k} Gaussians: {found}")
        likely = float(np.mean([loglik for _, loglik in found]))
        table.append(row(f"{k} Gaussians", [share for share, _ in found], None, **{"log-likelihood": likely}))
    return points(table, out / "gaussians.png", unit="rows at the learner of their kind, %")


def measure(k: int, n: int, seed: int) -> tuple[float, float]:
    """(share of held-out rows at the learner of their kind, their mean log-likelihood) with k Gaussians and two learners."""
    emnist = shared.emnist()
    chosen = np.random.default_rng(seed).permutation(len(emnist.y))[: n + 3000]
    shifted = images.shift(emnist.x[chosen], emnist.y[chosen], random_state=seed)
    x, moved = images.as_rows(shifted.x), shifted.moved[n:]
    model = up.FedGMM(
        k,
        2,
        optimizer="sgd",
        embedding=48,
        starts=("tied",),
        max_iter=14,
        random_state=seed,
        **PAPER_GMM | {"lr": 0.01, "reg_covar": 1e-3},
    )
    model.fit(together(by_label(x[:n], shifted.y[:n], 100, seed)))
    owner = model.shares_.argmax(1)[nearest(model, x[n:])]
    return max(float((owner == moved).mean()), float((owner != moved).mean())), float(model.log_density(x[n:]).mean())


def nearest(model: up.FedGMM, x: np.ndarray) -> np.ndarray:
    """The Gaussian under which each row is likeliest."""
    params = Params(model.weights_, model.means_, gaussian.pack_covs(model.covariances_, "full"))
    z = embed(x, Embedding(model.embedding_mean_, model.embedding_axes_, model.embedding_residual_))
    return log_densities(params, z, "full").argmax(1)
