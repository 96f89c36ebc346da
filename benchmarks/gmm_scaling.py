"""How the cost of an EM round grows with rows, components, columns and clients; draws docs/pictures/gmm-cost.png.

One thread, CPU seconds, float64, full covariances. A slope is fitted to the logarithms; 1 is linear.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _alternate import alternate
from gmm_round import problem
from threadpoolctl import threadpool_limits

from unpooled.client import Client
from unpooled.local import Local
from unpooled.models.mixture.em import e_step

BASE = {"rows": 20_000, "components": 8, "columns": 16, "clients": 20}
EACH = 100  # rows a client, where clients are many
SWEEPS = {
    "rows": [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000],
    "components": [2, 4, 8, 16, 32, 64],
    "columns": [4, 8, 16, 32, 64, 128],
    "clients": [10, 30, 100, 300, 1_000, 3_000, 10_000],
}
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "gmm-cost.png"


def a_round(rows: int, components: int, columns: int, clients: int, mode: str = "auto") -> Callable[[], object]:
    x, params = problem(np.random.default_rng(0), clients, rows // clients, columns, components)
    fed = Local([Client(str(i), part) for i, part in enumerate(x)], threads=1, mode=mode)
    return lambda: fed.sum(e_step.using(shape="full"), (params,))


def sweep(name: str, turns: int, mode: str = "auto") -> np.ndarray:
    """CPU seconds (values, turns); the values take turns."""
    settings = [{**BASE, name: v, **({"rows": EACH * v} if name == "clients" else {})} for v in SWEEPS[name]]
    seconds = alternate({str(i): a_round(**one, mode=mode) for i, one in enumerate(settings)}, turns)
    return np.array([seconds[str(i)].cpu for i in range(len(settings))])


def slope(values: list[int], seconds: np.ndarray) -> float:
    """Of the upper half, where what a round costs in itself no longer shows."""
    half = len(values) // 2
    return float(np.polyfit(np.log(values[half:]), np.log(np.median(seconds, 1)[half:]), 1)[0])


class Line(NamedTuple):
    label: str
    values: list[int]
    seconds: np.ndarray  # (values, turns)
    slope: float


def draw(panels: dict[str, list[Line]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(3.3 * len(panels), 3.3), layout="constrained")
    for axis, (name, lines) in zip(axes, panels.items()):
        for line, colour in zip(lines, ("#1f5f8b", "#c05020")):
            middle, low, high = np.median(line.seconds, 1), line.seconds.min(1), line.seconds.max(1)
            axis.errorbar(line.values, middle, [middle - low, high - middle], fmt="o", color=colour, capsize=2)
            fitted = middle[-1] * (np.array(line.values) / line.values[-1]) ** line.slope
            axis.plot(line.values, fitted, color=colour, linewidth=1, label=f"{line.label}slope {line.slope:.2f}")
        axis.set(xscale="log", yscale="log", xlabel=name)
        axis.set_xticks(lines[0].values, [f"{v:g}" if v < 1000 else f"{v // 1000}k" for v in lines[0].values])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, loc="upper left")
    axes[0].set_ylabel("CPU seconds of a round")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(turns: int, picture: Path) -> None:
    print(", ".join(f"{value} {name}" for name, value in BASE.items()), "unless swept; one thread, full covariances")
    panels: dict[str, list[Line]] = {}
    for swept, mode in [*((name, "auto") for name in SWEEPS), ("clients", "one by one")]:
        spent, many = sweep(swept, turns, mode), swept == "clients"
        line = Line(f"{mode}: " if many else "", SWEEPS[swept], spent, slope(SWEEPS[swept], spent))
        panels.setdefault(f"clients of {EACH} rows" if many else swept, []).append(line)
        points = ", ".join(f"{v}: {s:.4f}" for v, s in zip(line.values, np.median(spent, 1)))
        print(f"{swept}{f' ({mode})' if many else ''}: slope {line.slope:.2f} (CPU seconds {points})", flush=True)
    draw(panels, picture)
    print(f"drawn: {picture.name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    given = parser.parse_args()
    with threadpool_limits(1, user_api="blas"):
        main(given.turns, given.picture)
