"""Table 2: FedGMM is the most accurate of eight methods when sites differ in inputs and labels (paper: 72.02 against 65.61 %)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from _expected import expected
from _methods import GRID, METHODS, SMALL_GRID, accuracy, row, tuned

from unpooled.data import classification

SEEDS = 5
DIFFERS = (
    "centres and half-spaces are not in the paper: they are drawn anew for each seed, so accuracies are higher throughout and every "
    "method is to be read against the Bayes rule, which is computed. Rates are tuned on the validation rows of the first seed over the "
    "paper's grid. FedGMM's default takes Newton steps and has no rate; FedGMM (SGD) is trained as the others are."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    clients, rows, rounds = (30, 500, 60) if small else (300, 3000, 200)
    makers = {"paper's text": classification.paper, "public code": classification.public}
    table = []
    for generator, make in makers.items():
        tasks = [make(clients=clients, random_state=seed, **_sizes(generator, rows)) for seed in range(seeds)]
        best = [task.bayes_accuracy(task.test) for task in tasks]
        table.append(row("Bayes rule", best, None, generator=generator))
        for name in METHODS:
            options = {"batch_size": 128, "momentum": 0.9, "max_iter": rounds, "random_state": 0}
            lr = tuned(name, tasks[0].train, tasks[0].valid, options, min(rounds, 40), SMALL_GRID if small else GRID)
            found = [
                accuracy(METHODS[name](lr=lr, **options | {"random_state": s}).fit(t.train), t.test)
                for s, t in enumerate(tasks)
            ]
            plain, weighted = zip(*found)
            gap = 100 * float(np.mean(np.subtract(best, plain)))
            more = {
                "generator": generator,
                "rate": lr,
                "weighted by rows": 100 * float(np.mean(weighted)),
                "below Bayes": gap,
            }
            table.append(row(name, list(plain), expected("table2", "synthetic", name), **more))
            say(f"{generator}: {name} {table[-1]['ours']:.2f} (rate {lr:.3g})")
    return table


def _sizes(generator: str, rows: int) -> dict:
    return {"rows": rows} if generator == "paper's text" or rows < 3000 else {}
