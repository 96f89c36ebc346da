"""FedGMM comes within 1.5 points of the Bayes rule: in 10 rounds where learners are tied to Gaussians, in 40 where they are not (ours)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from _methods import METHODS, PAPER_GMM, accuracy, row, tuned
from _picture import points

import unpooled as up
from unpooled.datasets import classification

SEEDS = 5
DIFFERS = (
    "the paper has no such table: 30 clients of 500 training rows, d = 32. In `untied` every density meets every half-space. FedEM's "
    "rate is tuned on validation rows of the first seed (0.3, 0.1, 0.03); FedGMM by SGD takes batches of 32 at 0.1."
)
TRUTHS = {
    "public code": classification.public,
    "paper's text": classification.paper,
    "untied": partial(classification.paper, tied=False),
}


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    table = []
    for truth, make in TRUTHS.items():
        tasks = [make(clients=30, rows=833, random_state=seed) for seed in range(seeds)]
        best = [t.bayes_accuracy(t.test) for t in tasks]
        table.append(row("Bayes rule", best, None, truth=truth))
        for name, fit in methods(tasks[0]).items():
            models = [fit(seed).fit(t.train) for seed, t in enumerate(tasks)]
            found = [accuracy(m, t.test)[0] for m, t in zip(models, tasks)]
            chosen = ", ".join(sorted({m.start_.split()[1] for m in models if hasattr(m, "start_")})) or None
            gap = 100 * float(np.mean(np.subtract(best, found)))
            table.append(row(name, found, None, truth=truth, **{"below Bayes": gap, "start": chosen}))
            say(f"{truth}: {name} {table[-1]['ours']:.2f}, {gap:.2f} below the Bayes rule")
    return points(table, out / "bayes.png", "truth")


def methods(first: classification.Task) -> dict[str, Callable]:
    options = {"batch_size": 128, "momentum": 0.9, "max_iter": 60, "random_state": 0}
    lr = tuned("FedEM", first.train, first.valid, options, 40, (0.3, 0.1, 0.03))
    sgd = {"optimizer": "sgd", "batch_size": 32, "lr": 0.1, "max_iter": 60}
    return {
        "FedGMM, 10 rounds": lambda seed: up.FedGMM(3, 3, max_iter=10, random_state=seed, **PAPER_GMM),
        "FedGMM, 40 rounds": lambda seed: up.FedGMM(3, 3, max_iter=40, random_state=seed, **PAPER_GMM),
        "FedGMM, untied start, 40 rounds": lambda seed: up.FedGMM(
            3, 3, max_iter=40, starts=("untied",), random_state=seed, **PAPER_GMM
        ),
        "FedGMM by SGD, 60 rounds": lambda seed: up.FedGMM(3, 3, random_state=seed, **PAPER_GMM | sgd),
        "FedEM, 60 rounds": lambda seed: METHODS["FedEM"](**options | {"lr": lr, "random_state": seed}),
    }
