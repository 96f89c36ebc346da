"""How often FedConceptEM finds the number of concepts and every client's, by default parameters, over seeds.

    python benchmarks/concepts_found.py [--seeds 20] [--clients 30] [--rows 80] [--alpha 1.0] [--first 0]

Gaussian classes whose labels are mapped by 1, 2, 3 or 5 concepts, with equal or skewed label shares (Dirichlet with --alpha), trained
with one step of SGD a round or six. A line per case: in how many seeds the number is right, and in how many all clients are.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import unpooled as up
from unpooled.datasets import shift

CLASSES, COLUMNS = 6, 8


def rows(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(CLASSES, size=n)
    return 3 * np.eye(CLASSES, COLUMNS)[y] + rng.normal(size=(n, COLUMNS)), y


def right(concepts: int, alpha: float, steps: int, seed: int, clients: int, each: int) -> tuple[bool, bool]:
    """(whether the number is right, whether every client is with those of its concept and no others)."""
    pool = rows(5000 + seed, 2 * clients * each)
    made = shift.build(*pool, clients, rows=each, alpha=alpha, concepts=concepts, corrupted=0.0, random_state=seed)
    batch = max(1, int(np.ceil(0.9 * each / steps)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = up.FedConceptEM(lr=0.1, batch_size=batch, max_iter=30, personalize="none", random_state=seed).fit(
            made.train
        )
    pairs = {(made.concepts[name], found) for name, found in model.concepts_.items()}
    return model.n_concepts_ == concepts, model.n_concepts_ == concepts == len(pairs)


def main(seeds: range, clients: int, each: int, skew: float, numbers: list[int]) -> None:
    print("| concepts | labels | steps a round | number right | all clients right |\n|---|---|---|---|---|")
    for concepts in numbers:
        for labels, alpha in (("equal", np.inf), ("skewed", skew)):
            for steps in (1, 6):
                found = np.array([right(concepts, alpha, steps, seed, clients, each) for seed in seeds])
                number, everyone = found.sum(0)
                missed = [seed for seed, (_, all_right) in zip(seeds, found) if not all_right]
                note = f" (not in {', '.join(map(str, missed))})" if missed else ""
                counts = f"{number} of {len(seeds)} | {everyone} of {len(seeds)}{note}"
                print(f"| {concepts} | {labels} | {steps} | {counts} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--rows", type=int, default=80)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--concepts", default="1,2,3,5")
    given = parser.parse_args()
    numbers = [int(k) for k in given.concepts.split(",")]
    main(range(given.first, given.first + given.seeds), given.clients, given.rows, given.alpha, numbers)
