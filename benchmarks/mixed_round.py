"""CPU time of a round of MixedMixture against a round of GaussianMixture with as many columns, in process, one thread.

    python benchmarks/mixed_round.py [rows]

The mixed table has as many columns: a third each of numbers, categories of five levels, and counts. Rounds of both models alternate; the
median of each is shown, and the median and range of their ratio, which is to stay below 1.5.
"""

import sys
from collections.abc import Callable

import numpy as np
from _alternate import alternate, ratio

from unpooled.data.federate import federate
from unpooled.models import initialization
from unpooled.models.mixed import start as starting
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.questions import e_step as mixed_e_step
from unpooled.models.mixture.gaussian_mixture import e_step as gaussian_e_step

TURNS = 25
START = 1000  # rows from which the mixture that is asked about is made
SHAPES = ("full", "tied", "diag", "spherical")
SIZES = [(12, 5), (30, 8)]  # columns, components
MISSING = (0.0, 0.02, 0.1)  # share of cells


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


def rounds(rows: int, d: int, k: int, shape: str, missing: float) -> dict[str, Callable[[], object]]:
    """A round of each model."""
    numbers, table, kinds = tables(rows, d, missing)
    plain, mixed = federate({"a": numbers}, threads=1), federate({"a": table}, threads=1)
    frame = initialization.frame(plain)
    params = initialization.wide(frame, initialization.random_means(frame, k, np.random.default_rng(1)), shape)
    given = Columns(kinds, [-1 if kind == "category" else 0 for kind in kinds])
    some = federate({"a": table[:START]}, threads=1)
    seen = starting.seen(some, given, list(map(str, range(d))))
    settings = starting.Settings(shape, 1e-6, 1.0)
    start = starting.starts(some, seen, [k], 1, settings, np.random.default_rng(1))[0]
    asked = mixed_e_step.using(columns=seen.columns.option, shape=shape)
    return {
        "gaussian": lambda: plain.sum(gaussian_e_step.using(shape=shape), (params,)),
        "mixed": lambda: mixed.sum(asked, (start,)),
    }


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    print(f"columns   k      shape  missing  gaussian     mixed  ratio   ({rows} rows, CPU)")
    for d, k in SIZES:
        for shape in SHAPES:
            for missing in MISSING:
                spent = alternate(rounds(rows, d, k, shape, missing), TURNS)
                plain, mixed = (float(np.median(spent[name].cpu)) for name in ("gaussian", "mixed"))
                times = ratio(spent["mixed"].cpu, spent["gaussian"].cpu)
                print(f"{d:7d} {k:3d} {shape:>10} {missing:8.2f} {plain:8.4f}s {mixed:8.4f}s  {times}", flush=True)


if __name__ == "__main__":
    main()
