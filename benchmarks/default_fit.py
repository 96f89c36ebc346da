"""A whole default fit of GaussianMixture, its start included, beside scikit-learn's default fit of the pooled rows.

    python benchmarks/default_fit.py [--turns 3]

Drawn mixtures over ten clients; one BLAS thread, by turns in one process. Processor seconds, how many times scikit-learn's, and how
much higher the final log-likelihood per row is. "Gathered" is the start from each client's own k-means.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from _alternate import alternate, ratio
from sklearn.mixture import GaussianMixture as Pooled
from threadpoolctl import threadpool_limits

import unpooled as up

SIZES = (  # rows, columns, components
    (10_000, 5, 4),
    (100_000, 5, 4),
    (1_000_000, 2, 2),
    (300_000, 10, 8),
    (400_000, 20, 5),
)


def drawn(n: int, d: int, k: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return 3 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))


def main(turns: int) -> None:
    print("| rows | columns | components | scikit-learn s | default, times | gathered, times | higher | higher |")
    print(f"|{'---|' * 8}")
    for n, d, k in SIZES:
        x = drawn(n, d, k)
        clients = {str(i): x[i::10] for i in range(10)}
        fitted: dict[str, Any] = {}

        def work(name: str, model: Any, data: Any, fitted: dict[str, Any] = fitted) -> Callable[[], None]:
            """A fit whose result is kept."""
            return lambda: fitted.update({name: model.fit(data)})

        fits = {
            "peer": work("peer", Pooled(k, random_state=0), x),
            "cells": work("cells", up.GaussianMixture(k, random_state=0), clients),
            "gather": work("gather", up.GaussianMixture(k, random_state=0, init_params="gather"), clients),
        }
        seconds = {name: spent.cpu for name, spent in alternate(fits, turns).items()}
        times = [ratio(seconds[name], seconds["peer"]) for name in ("cells", "gather")]
        higher = [f"{fitted[name].lower_bound_ - fitted['peer'].lower_bound_:+.4f}" for name in ("cells", "gather")]
        print(
            "|", " | ".join(map(str, (n, d, k, f"{np.median(seconds['peer']):.2f}", *times, *higher))), "|", flush=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(parser.parse_args().turns)
