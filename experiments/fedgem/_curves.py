"""Pictures of how methods fare as something grows: one column for what grows, rows for the score, the number of clusters and the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# What is drawn: its name and how it is read off a measurement.
Measures = dict[str, Callable[[dict], float]]
SCORE: Measures = {
    "ARI over all rows (1 is perfect)": lambda row: row["pooled_ari"],
    "clusters found for each true one": lambda row: row["k"] / row["k_true"],
}
WORK: Measures = {"CPU seconds of a fit": lambda row: row["cpu_seconds"]}
LOOKS = {
    "OpenMixture auto": ("tab:red", "o"),
    "OpenMixture gaussians": ("tab:orange", "o"),
    "FedGEM": ("tab:blue", "s"),
    "FedGEM, K_g by BIC": ("tab:cyan", "s"),
    "AFCL": ("tab:brown", "^"),
    "k-FED": ("tab:green", "v"),
    "federated k-means": ("tab:olive", "v"),
    "central GMM": ("black", "D"),
    "central GMM, BIC": ("tab:gray", "D"),
}


class Column(NamedTuple):
    title: str  # what grows
    cases: dict[str, float]  # case -> where it stands


def draw(rows: list[dict], columns: Sequence[Column], measures: Measures, told: dict[str, str], file: Path) -> Path:
    """Means over seeds, and a band of one standard deviation; K is left out for methods that are told it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    wide, high = (len(columns), len(measures)) if len(columns) > 1 else (len(measures), 1)
    figure, axes = plt.subplots(high, wide, figsize=(4.6 * wide, 3.0 * high), squeeze=False, sharex="col")
    pairs = [(name, column) for name in measures for column in columns]
    for axis, (name, column) in zip(axes.ravel(), pairs):
        _panel(axis, rows, column, measures[name], told, name)
        axis.set_ylabel(name if column is columns[0] else "")
        axis.set_xlabel(column.title if name == pairs[-1][0] or high == 1 else "")
    _legend(figure, axes, told)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=90, bbox_inches="tight")
    plt.close(figure)
    return file


def _panel(axis: Any, rows: list[dict], column: Column, read: Callable, told: dict[str, str], name: str) -> None:
    number = name.startswith("clusters")
    for method, (colour, marker) in LOOKS.items():
        if number and told[method].split(",")[0] == "K":
            continue
        found = {c: [read(r) for r in rows if (r["case"], r["method"]) == (c, method)] for c in column.cases}
        seen = [(column.cases[c], np.mean(v), np.std(v)) for c, v in found.items() if v]
        if len(seen) > len(column.cases) // 2:  # a point or two are no curve
            x, mean, spread = np.array(seen).T
            axis.plot(
                x, mean, color=colour, marker=marker, markersize=4, label=method, zorder=3 if "Open" in method else 2
            )
            axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
    if number:
        axis.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
        axis.set_yscale("log")
        ends = [v for line in axis.lines for v in line.get_ydata()]
        axis.set_ylim(min(0.45, *ends), max(4.4, *ends))
        axis.set_yticks([0.5, 1.0, 2.0, 4.0], ["half", "1", "2", "4"], minor=False)
        axis.minorticks_off()
    if name in WORK:
        axis.set_yscale("log")
    axis.grid(alpha=0.25)
    axis.set_xticks(list(column.cases.values()), [f"{v:g}" for v in column.cases.values()])


def _legend(figure: Any, axes: Any, told: dict[str, str]) -> None:
    lines = {label: line for axis in axes.ravel() for line, label in zip(*axis.get_legend_handles_labels())}
    texts = [f"{m} (told {told[m] or 'nothing'})" for m in lines]
    figure.tight_layout()
    figure.legend(lines.values(), texts, loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0), frameon=False)
