"""Figure 3: accuracy hardly depends on the numbers of Gaussians and learners once both reach the truth's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from _cells import Book, Key, Measure, grouped
from _methods import PAPER_GMM, accuracy, row, together

import unpooled as up
from unpooled.datasets import classification

SEEDS = 3
DIFFERS = "the paper varies M1 and M2 on images with two true components; here the truth has three of each, and what `auto` picks is shown."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    groups = grouped(Book(out, say).all(cells(small, seeds)), "gaussians", "learners")
    auto = groups.pop(("auto", "auto"))
    table = [row(f"{k} Gaussians, {m} learners", _accuracies(found), None) for (k, m), found in groups.items()]
    plot(np.reshape([line["ours"] for line in table], (-1, len(sizes(small)))), sizes(small), out / "figure3.png")
    return [*table, row("auto: " + ", ".join(f["start"].split()[0] for f in auto), _accuracies(auto), None)]


def sizes(small: bool) -> tuple[int, ...]:
    return (1, 2, 3, 4) if small else (1, 2, 3, 4, 5, 6)


def cells(small: bool, seeds: int) -> Iterator[tuple[Key, Measure]]:
    pairs = [(k, m) for k in sizes(small) for m in sizes(small)]
    for k, m in [*pairs, ("auto", "auto")]:
        for seed in range(seeds):
            yield {"gaussians": k, "learners": m, "seed": seed}, partial(_measure, k, m, seed, small)


def _measure(k: int | str, m: int | str, seed: int, small: bool, book: Book) -> dict:
    task = classification.paper(30, 500 if small else 833, random_state=seed)
    how = {"starts": ("tied",), "max_iter": 20} if k == "auto" else {"max_iter": 15}
    model = up.FedGMM(k, m, random_state=seed, **PAPER_GMM | how).fit(together(task.train))
    return {"accuracy": accuracy(model, task.test)[0], "start": model.start_}


def _accuracies(found: list[dict]) -> list[float]:
    return [f["accuracy"] for f in found]


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
