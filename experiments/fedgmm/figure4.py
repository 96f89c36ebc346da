"""Figure 4: FedGMM needs a tenth of the rounds that the other methods take to settle, and settles higher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from _cells import RESULTS, Book, grouped
from _methods import row
from table2 import cells

SEEDS = 3
DIFFERS = "the paper plots image data over 200 rounds; here it is the synthetic data of the paper's text: these are the runs of table2."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    book = Book(out, say, beside=[RESULTS / ("table2-small" if small else "table2")])
    groups = grouped(book.all(cells(small, seeds, ("paper's text",))), "method")
    bayes = float(np.mean([found["accuracy"] for found in groups.pop(("Bayes rule",))]))
    table = [
        row(method, [found["curve"][mark] for found in runs], None, round=int(mark))
        for (method,), runs in groups.items()
        for mark in runs[0]["curve"]
    ]
    plot(table, bayes, out / "figure4.png")
    return table


def plot(table: list[dict], bayes: float, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(line["method"] for line in table):
        points = {line["round"]: line["ours"] for line in table if line["method"] == name}
        axes.plot(list(points), list(points.values()), label=name, lw=2.5 if name == "FedGMM" else 1.2)
    axes.axhline(100 * bayes, color="black", ls=":", label="Bayes rule")
    axes.set(xscale="log", xlabel="round", ylabel="accuracy, mean over clients, %")
    rounds = [r for r in (5, 10, 20, 40, 60, 100, 200) if r <= max(line["round"] for line in table)]
    axes.set_xticks(rounds, labels=map(str, rounds))
    axes.minorticks_off()
    figure.legend(loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=130)
