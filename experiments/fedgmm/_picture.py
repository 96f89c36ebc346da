"""A table as a picture: our figures as points with their spread, the paper's as marks beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def points(table: list[dict], path: Path, panel: str | None = None, unit: str = "accuracy, %") -> list[dict]:
    """Draws one panel for each value of the column `panel`, or one for all, and gives the table back."""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(line[panel] for line in table)) if panel else [""]
    figure = Figure(figsize=(3 + 2.6 * len(panels), 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels):
        _panel(axes, [line for line in table if not panel or line[panel] == name])
        axes.set(title=name)
    figure.axes[0].invert_yaxis()
    figure.supxlabel(unit, fontsize="medium")
    seen = {label: mark for axes in figure.axes for mark, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(list(seen.values()), list(seen), loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=130)
    return table


def _panel(axes: Any, lines: list[dict]) -> None:
    rest = [line for line in lines if line["method"] != "Bayes rule"]
    for line in lines:
        if line["method"] == "Bayes rule":
            axes.axvline(line["ours"], color="black", ls=":", label="Bayes rule")
    ours, spread, names = ([line[column] for line in rest] for column in ("ours", "spread", "method"))
    axes.errorbar(ours, names, xerr=spread, fmt="o", capsize=3, label="ours")
    printed = [(line["paper"], line["method"]) for line in rest if line["paper"] is not None]
    if printed:
        axes.plot(*zip(*printed), "k|", ms=12, mew=2, label="paper")
    axes.grid(axis="x", alpha=0.3)
