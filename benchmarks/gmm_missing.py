"""What missing values cost: EM rounds with 20 % of the cells missing, against the same rounds on complete rows.

Every row has holes. 50 patterns is the figure; rows that nearly all differ in their holes are the hard case, in which each
pattern needs a factorisation of its own. One thread; both run by turns in one process.
"""

from __future__ import annotations

import argparse

import numpy as np
from _alternate import alternate, compare
from gmm_round import problem
from threadpoolctl import threadpool_limits

from unpooled.maths import gaussian, mixture, shapes
from unpooled.maths.mixture import Params


def fit(params: Params, x: np.ndarray, shape: str, rounds: int) -> Params:
    w = np.ones(len(x))
    for _ in range(rounds):
        params = mixture.m_step(params, mixture.e_step(params, x, w, shape), shape, 1e-6)
    return params


def in_patterns(rng: np.random.Generator, x: np.ndarray, patterns: int, share: float) -> np.ndarray:
    """The rows with `share` of their cells missing, in this many patterns; 0: each cell on its own."""
    n, d = x.shape
    if not patterns:
        return np.where(rng.random(x.shape) < share, np.nan, x)
    hidden = rng.permuted(np.tile(np.arange(d) < round(share * d), (patterns, 1)), axis=1)
    return np.where(hidden[rng.integers(0, patterns, n)], np.nan, x)


def against_complete(args: argparse.Namespace, shape: str, n: int, patterns: int) -> None:
    rng = np.random.default_rng(patterns)
    x, full = problem(rng, 1, n, args.d, args.k)
    covs = gaussian.reshape_covs(gaussian.full_covs(full, "full"), shape)
    params, holes = full._replace(covs=gaussian.pack_covs(covs, shape)), in_patterns(rng, x[0], patterns, args.share)

    def with_holes() -> None:
        shapes._prepared.cache_clear()  # every fit pays for its own factorisations
        fit(params, holes, shape, args.rounds)

    seconds = alternate({"holes": with_holes, "complete": lambda: fit(params, x[0], shape, args.rounds)}, args.turns)
    found = len(np.unique(np.packbits(np.isnan(holes), axis=1), axis=0))
    per_row = np.median(seconds["holes"].cpu) / n / args.rounds * 1e6
    times = compare(seconds, "holes", "complete")["cpu"]
    print(
        f"{shape:9s} {n:7d} rows {found:6d} patterns: {times} times the complete fit, {per_row:.1f} us CPU a row and round"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d", type=int, default=20)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    print(f"d = {given.d}, K = {given.k}, {given.share:.0%} of the cells missing, {given.rounds} rounds a fit, float64")
    with threadpool_limits(1, user_api="blas"):
        for kind in gaussian.SHAPES:
            against_complete(given, kind, 50_000, 50)
        against_complete(given, "full", 5_000, 0)
