"""A round's cost is linear in clients, in rows and in learners: slopes of FedGMM's CPU seconds on a log-log scale.

Each quantity is doubled three times with the others fixed; 1.0 is linear, below is better. `--plot FILE` draws the picture of the docs.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import unpooled as up
from unpooled.client import Client
from unpooled.datasets import classification
from unpooled.local import Local

BASE = {"clients": 40, "rows": 1000, "learners": 2}
SWEEPS = {"clients": (20, 40, 80, 160), "rows": (500, 1000, 2000, 4000), "learners": (1, 2, 4, 8)}


def main(repeats: int, plot: Path | None) -> None:
    threadpool_limits(1)
    seconds = {}
    for what, values in SWEEPS.items():
        rounds = [joint_round(**BASE | {what: v}) for v in values]
        # by turns, so that all share what else the machine does
        turns = [[cpu(r) for r in rounds] for _ in range(repeats)]
        seconds[what] = [statistics.median(column) for column in zip(*turns)]
        slopes = [np.polyfit(np.log(values), np.log(turn), 1)[0] for turn in turns]
        shown = ", ".join(f"{v}: {s:.3f}" for v, s in zip(values, seconds[what]))
        print(
            f"{what:<9}slope {statistics.median(slopes):.2f} ({min(slopes):.2f} to {max(slopes):.2f}); CPU seconds {shown}",
            flush=True,
        )
    if plot:
        draw(seconds, plot)


def joint_round(clients: int, rows: int, learners: int):
    """A function that runs one joint round more each time, by SGD."""
    task = classification.paper(clients, rows, parts=(1.0, 0.0, 0.0), random_state=0)
    fed = Local([Client(n, x.astype(np.float32), y) for n, (x, y) in task.train.items()], threads=1)
    model = up.FedGMM(
        3, learners, optimizer="sgd", starts=("tied",), warmup=1, max_iter=10**6, random_state=0, tol=0.0, lr=0.1
    )
    moments = model.rounds(fed)
    for _ in range(4):
        next(moments)
    return lambda: next(moments)


def cpu(work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def draw(seconds: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.8), layout="constrained")
    for axes, (what, values) in zip(figure.subplots(1, 3, sharey=True), SWEEPS.items()):
        axes.loglog(values, seconds[what], "o-")
        axes.loglog(values, [seconds[what][0] * v / values[0] for v in values], ":", color="grey", label="linear")
        axes.set_xticks(values, labels=[str(v) for v in values])
        axes.set_xticks([], minor=True)
        axes.set(xlabel=what)
        axes.legend()
    figure.axes[0].set_ylabel("CPU seconds a round")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    main(arguments.repeats, arguments.plot)
