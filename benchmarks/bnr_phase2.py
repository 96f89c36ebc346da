"""What FedBNR's exact last layer costs: 100 clients, 9000 rows, 500 features; and that it grows linearly with the rows.

One thread, CPU seconds; from the clients' rows to the posterior at the server. Draws docs/pictures/bnr-cost.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _alternate import alternate
from threadpoolctl import threadpool_limits

from unpooled import tree
from unpooled.client import Client
from unpooled.local import Local
from unpooled.maths import bayes_linear, feature_maps
from unpooled.models.regression.design import Design, statistics
from unpooled.models.regression.scaling import Scaling

ROWS, FEATURES, CLIENTS, COLUMNS = 9_000, 500, 100, 10
SWEEP = [2_250, 4_500, 9_000, 18_000, 36_000, 72_000]
LIMIT = 0.5  # seconds at ROWS
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "bnr-cost.png"


def phase2(rows: int) -> Callable[[], bayes_linear.Posterior]:
    """A callable that makes the one SUM and the posterior of it."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, COLUMNS)), rng.normal(size=rows)
    parts = np.array_split(np.arange(rows), CLIENTS)
    fed = Local([Client(str(i), x[part], y[part]) for i, part in enumerate(parts)], threads=1)
    spec = {"map": "ard", "m": FEATURES // 2, "spectrum": "rbf", "frequencies": "fixed"}
    zero, one = np.zeros(COLUMNS), np.ones(COLUMNS)
    design = Design(Scaling(zero, zero, one, zero[:1], one[:1]), feature_maps.start(spec, COLUMNS, rng))
    ask = statistics.using(spec=spec, share=0.0, seed=0)
    return lambda: bayes_linear.posterior(fed.sum(ask, design))


def draw(seconds: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(5, 3.5))
    ax.loglog(SWEEP, np.median(seconds, 1), "o-", label="measured")
    ax.loglog(SWEEP, np.median(seconds, 1)[-1] * np.array(SWEEP) / SWEEP[-1], "--", color="grey", label="linear")
    ax.set(xlabel="rows of all clients", ylabel="CPU seconds", title=f"One exact last layer, {FEATURES} features")
    ax.set_xticks(SWEEP, [f"{n:,}" for n in SWEEP], fontsize="small")
    ax.set_xticks([], minor=True)
    ax.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.tight_layout()
    fig.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    with threadpool_limits(1):
        seen = alternate({str(n): phase2(n) for n in SWEEP}, args.turns)
    seconds = np.array([seen[str(n)].cpu for n in SWEEP])
    for n, each in zip(SWEEP, seconds):
        print(f"{n:>7} rows: {np.median(each):.3f} s ({each.min():.3f} to {each.max():.3f})")
    slope = np.polyfit(np.log(SWEEP[2:]), np.log(np.median(seconds, 1)[2:]), 1)[0]
    print(f"slope of log seconds by log rows from {SWEEP[2]} on: {slope:.2f} (1 is linear)")
    sent = tree.size(bayes_linear.statistics(np.zeros((1, FEATURES)), np.zeros((1, 1)), np.ones(1)))
    print(f"a client sends {sent / 1e6:.2f} MB; the limit at {ROWS} rows is {LIMIT} s")
    draw(seconds, PICTURE)


if __name__ == "__main__":
    main()
