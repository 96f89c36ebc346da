"""Time of a round of MixedMixture against a round of GaussianMixture with as many columns, in process, one thread.

    python benchmarks/mixed_round.py [rows]

The mixed table has as many columns: a third each of numbers, categories of five levels, and counts. Rounds of both models alternate, and
the median of each is shown; the ratio is to stay below 1.5.
"""

import sys
import time

import numpy as np

from unpooled.data.federate import federate
from unpooled.models import initialization
from unpooled.models.mixed import start as starting
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.questions import e_step as mixed_e_step
from unpooled.models.mixture.gaussian_mixture import e_step as gaussian_e_step

ROUNDS = 9
CASES = [  # columns, components, shape, share of missing cells
    (12, 5, "full", 0.0),
    (12, 5, "full", 0.1),
    (30, 8, "full", 0.0),
    (30, 8, "full", 0.02),
    (12, 5, "diag", 0.0),
    (12, 5, "diag", 0.1),
]


def tables(rows: int, d: int, missing: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(a table of numbers, a mixed table, its kinds)."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(rows, d)) + rng.integers(0, 3, (rows, 1))
    kinds = ["real"] * (d - 2 * (d // 3)) + ["category"] * (d // 3) + ["count"] * (d // 3)
    mixed = numbers.copy()
    for j, kind in enumerate(kinds):
        if kind == "category":
            mixed[:, j] = rng.integers(0, 5, rows)
        if kind == "count":
            mixed[:, j] = rng.poisson(4.0, rows)
    holes = rng.random((rows, d)) < missing
    numbers[holes], mixed[holes] = np.nan, np.nan
    return numbers, mixed, kinds


def seconds(ask, fed, down) -> float:
    start = time.perf_counter()
    fed.sum(ask, down)
    return time.perf_counter() - start


def compare(rows: int, d: int, k: int, shape: str, missing: float) -> tuple[float, float]:
    """Median seconds of a round: Gaussian, mixed."""
    numbers, table, kinds = tables(rows, d, missing)
    plain, mixed = federate({"a": numbers}, threads=1), federate({"a": table}, threads=1)
    frame = initialization.frame(plain)
    params = initialization.wide(frame, initialization.random_means(frame, k, np.random.default_rng(1)), shape)
    seen = starting.seen(
        mixed, Columns(kinds, [-1 if kind == "category" else 0 for kind in kinds]), list(map(str, range(d)))
    )
    start = starting.starts(mixed, seen, [k], 1, starting.Settings(shape, 1e-6, 1.0), np.random.default_rng(1))[0]
    asked = mixed_e_step.using(columns=seen.columns.option, shape=shape)
    times = [
        (seconds(gaussian_e_step.using(shape=shape), plain, (params,)), seconds(asked, mixed, (start,)))
        for _ in range(ROUNDS)
    ]
    return tuple(np.median(times, axis=0))


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    print(
        f"{'columns':>8} {'k':>3} {'shape':>6} {'missing':>8} {'gaussian':>9} {'mixed':>9} {'ratio':>6}   ({rows} rows)"
    )
    for d, k, shape, missing in CASES:
        plain, mixed = compare(rows, d, k, shape, missing)
        print(f"{d:8d} {k:3d} {shape:>6} {missing:8.2f} {plain:8.4f}s {mixed:8.4f}s {mixed / plain:6.2f}")


if __name__ == "__main__":
    main()
