"""Draw accuracy by epsilon from the tables of experiments/privacy: mixtures on the left, regressions on the right."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RESULTS = HERE / "results"
OUT = HERE.parents[1] / "docs" / "pictures" / "privacy.png"
COLOURS = ("#3b6fb6", "#e08a2e", "#4a9d6f", "#8467b0")
LEAST = 1e-4  # gaps below are drawn here


def rows(name: str) -> list[dict]:
    return json.loads((RESULTS / name / "table.json").read_text())


def lines(table: list[dict], label, x: str, y: str) -> dict[str, tuple[list, list]]:
    """name -> (epsilons, values), in the order of the table."""
    found: dict[str, tuple[list, list]] = {}
    for row in table:
        xs, ys = found.setdefault(label(row), ([], []))
        xs.append(row[x])
        ys.append(row[y])
    return found


def draw_mixtures(axes) -> None:
    table = [r for r in rows("mixtures") if r["rows"] == 10_000]
    ours = [r for r in table if r["method"] == "ours"]
    label = lambda r: f"{r['rows']:,} rows, {r['columns']} columns, {r['components']} components"  # noqa: E731
    for colour, (name, (x, y)) in zip(COLOURS, lines(ours, label, "epsilon", "median gap").items()):
        axes.plot(x, [max(v, LEAST) for v in y], "o-", color=colour, label=name)
        peer = [r for r in table if r["method"] == "DP-EM" and label(r) == name]
        axes.plot([r["epsilon"] for r in peer], [r["median gap"] for r in peer], "s:", color=colour, alpha=0.6)
    axes.plot([], [], "s:", color="#888888", label="DP-EM")
    axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="nats per row below the fit without privacy")
    axes.set_title("mixtures", fontsize=10)


def draw_regressions(axes) -> None:
    table = rows("regression")
    ours = lines(table, lambda r: r["table"], "epsilon", "RMSE / without privacy")
    peers = lines(table, lambda r: r["table"], "epsilon", "AdaSSP / without privacy")
    for colour, name in zip(COLOURS, ours):
        axes.plot(*ours[name], "o-", color=colour, label=name)
        axes.plot(*peers[name], "s:", color=colour, alpha=0.6)
    axes.plot([], [], "s:", color="#888888", label="AdaSSP")
    axes.set(xscale="log", xlabel="epsilon", ylabel="error / error without privacy")
    axes.set_title("regressions", fontsize=10)


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    draw_mixtures(left)
    draw_regressions(right)
    for axes in (left, right):
        ticks = [0.5, 1, 2, 4, 8] if axes is right else [0.5, 1, 2, 4]
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.minorticks_off()
        axes.legend(fontsize=8, framealpha=0.9, loc="lower left" if axes is left else "upper right")
        for side in axes.spines.values():
            side.set_color("#cccccc")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
