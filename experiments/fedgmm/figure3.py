"""Figure 3: accuracy hardly depends on the numbers of Gaussians and learners once both reach the truth's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from _methods import accuracy, row

import unpooled as up
from unpooled.data import classification

SEEDS = 3
DIFFERS = "the paper varies M1 and M2 on images with two true components; here the truth has three of each, and what `auto` picks is shown."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    sizes = (1, 2, 3, 4) if small else (1, 2, 3, 4, 5, 6)
    tasks = [classification.paper(30, 500 if small else 833, random_state=seed) for seed in range(seeds)]
    table, grid = [], np.zeros((len(sizes), len(sizes)))
    for i, k in enumerate(sizes):
        for j, m in enumerate(sizes):
            models = [up.FedGMM(k, m, max_iter=15, random_state=s).fit(t.train) for s, t in enumerate(tasks)]
            found = [accuracy(model, t.test)[0] for model, t in zip(models, tasks)]
            table.append(row(f"{k} Gaussians, {m} learners", found, None))
            grid[i, j] = table[-1]["ours"]
        say(f"{k} Gaussians: " + ", ".join(f"{v:.1f}" for v in grid[i]))
    auto = [
        up.FedGMM("auto", "auto", starts=("tied",), max_iter=20, random_state=s).fit(t.train)
        for s, t in enumerate(tasks)
    ]
    found = [accuracy(model, t.test)[0] for model, t in zip(auto, tasks)]
    table.append(row("auto: " + ", ".join(m.start_.split()[0] for m in auto), found, None))
    plot(grid, sizes, out / "figure3.png")
    return table


def plot(grid: np.ndarray, sizes: tuple[int, ...], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 3.8), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(grid, origin="lower", cmap="viridis")
    axes.set(xticks=range(len(sizes)), yticks=range(len(sizes)), xlabel="learners", ylabel="Gaussians")
    axes.set_xticklabels(sizes)
    axes.set_yticklabels(sizes)
    for (i, j), value in np.ndenumerate(grid):
        axes.text(j, i, f"{value:.1f}", ha="center", va="center", color="white" if value < grid.mean() else "black")
    figure.colorbar(image, label="accuracy, %")
    figure.savefig(path, dpi=130)
