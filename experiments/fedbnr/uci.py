"""FedBNR's tables 3.1 to 3.4: five UCI sets over 10 and 100 clients of sorted chunks; `kernel="exact"` beats every column."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _pictures as pictures
import _protocol as protocol
import _runs as runs
import _stacked as stacked
import _trainings as trainings
import numpy as np
import torch
from scipy.stats import wilcoxon

from unpooled.commands.reproduce import markdown

HERE = Path(__file__).parent
SEEDS = 10
EXPECTED = tomllib.loads((HERE / "expected.toml").read_text())
MEASURES = ("rmse", "ece", "mce", "brier")
COLUMNS = [(name, clients) for name in protocol.SETS for clients in (10, 100)]
CENTRAL = ("Central GP", "Central GP random features")  # they do not know of clients: run once, shown in both columns
METHODS = [*runs.METHODS, "FedBNR as printed", "FedBNR average server noise", "FedBNR-KD as printed", "local+local", "local+global",
           "avg+local", "kd+local", "FedAvg", "FedProx", "pFedGP", "FedLoc"]  # in the tables' order  # fmt: skip
DIFFERS = (
    "Values are at the round that is best for validation rows, by their mean absolute error (the thesis takes the round that is best for "
    "test rows: column rmse_min). For the printed algorithm and its peers these are the thesis's tenth of all rows, and they choose, for "
    f"every split, the learning rate too (of {', '.join(map(str, stacked.RATES))}; FedLoc: rho, of "
    f"{', '.join(f'{r:g}' for r in stacked.RHOS)} and the thesis's); FedProx's mu and FedBNR-KD's alpha are the thesis's. Networks are "
    f"{trainings.WIDTH} wide in every set instead of 200 to 5000, and train {trainings.EPOCHS} epochs a round instead of up to 50; the "
    f"server distils {trainings.DISTILL_STEPS} steps. FedBNR "
    "exact holds its validation rows out by a hash of the row, has its own kernel for each set (configs.toml), chosen on validation rows "
    "of other splits, bends heavy columns (the other methods standardise them, as the thesis does), lets rows of the same value of a "
    "column share an offset where that explains what a smooth function does not (CCPP: V, Parkinsons: test_time), and takes the "
    "validation rows into its last layer when the round is chosen. Our central GP is an exact one (one length scale a column). "
    "Parkinsons is without subject#."
)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    """One row a set, number of clients, method and measure. Runs found in the folder are not run again; small: one set, no peers."""
    sets = protocol.SETS[:1] if small else protocol.SETS
    wanted = [
        (s, c, k, m)
        for s in sets
        for c in ((10,) if small else (10, 100))
        for k in runs.seeds_of(s, seeds)
        for m in runs.METHODS
        if not (m in CENTRAL and (c == 100 or small))
    ]
    results = runs.run_all(wanted, out / "results.jsonl", say)
    if not small:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        stacked.fill_all(stacked.jobs_left(out / "stacked.jsonl", seeds=seeds, device=device), say)
        results += runs.finished(out / "stacked.jsonl")
    draw(results, out / "rmse-by-sums.png")
    return table(results)


def table(results: list[dict]) -> list[dict]:
    """Means and standard errors over seeds beside the thesis's, with the mark of a Wilcoxon test against FedBNR exact."""
    groups: dict[tuple, dict[int, dict]] = {}
    for r in results:
        groups.setdefault((r["set"], r["clients"], r["method"]), {})[r["seed"]] = r
    rows = []
    for (name, clients, method), found in groups.items():
        best = groups.get((name, clients, "FedBNR exact"), {})
        for measure in MEASURES:
            values = np.array([r[measure] for r in found.values() if measure in r])
            if len(values):
                rows.append(line(name, clients, method, measure, values, found, best))
    return rows


def line(name: str, clients: int, method: str, measure: str, values: np.ndarray, found: dict, best: dict) -> dict:
    spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    extra = {
        "rmse_min": mean(found, "rmse_min"),
        "sums": mean(found, "sums"),
        "sums_to_best": mean(found, "sums_to_best"),
    }
    if measure != "rmse":
        extra = {"raw": mean(found, f"{measure}_raw"), "cover90": mean(found, "cover90")}
    paper = EXPECTED.get(measure, {}).get(method, {}).get(f"{name}-{clients}")
    return {"data": name, "clients": clients, "method": method, "metric": measure, "seeds": len(values),
            "ours": float(values.mean()), "spread": spread, "paper": paper, "mark": mark(measure, found, best),
            "cut": any(r.get("cut", False) for r in found.values()), **extra}  # fmt: skip


def mean(found: dict, key: str) -> float | None:
    values = [r[key] for r in found.values() if key in r]
    return float(np.mean(values)) if values else None


def mark(measure: str, found: dict, best: dict) -> str:
    """++ or + where significantly worse than FedBNR exact (p < .01, .05), -- or - where better; one-tailed Wilcoxon."""
    common = [s for s in found if s in best and measure in found[s] and measure in best[s]]
    away = np.array([found[s][measure] - best[s][measure] for s in common])
    if len(away) < 5 or not away.any():
        return ""
    for sign, side in (("+", "greater"), ("-", "less")):
        p = wilcoxon(away, alternative=side).pvalue
        if p < 0.05:
            return 2 * sign if p < 0.01 else sign
    return ""


def draw(results: list[dict], path: Path) -> None:
    """The test error of FedBNR exact after each SUM, one panel a set: mean and range over splits, the aims, the thesis's best."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, 3, figsize=(11, 6))
    for ax, name in zip(axes.flat, protocol.SETS):
        panel(ax, name, [r for r in results if (r["set"], r["method"]) == (name, "FedBNR exact")])
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="center", frameon=False)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def panel(ax: Any, name: str, found: list[dict]) -> None:
    aim, limit = EXPECTED["aim"]["rmse"][name], EXPECTED["aim"]["sums"][name]
    for clients in (10, 100):
        curves = [r["curve"] for r in found if r["clients"] == clients]
        if curves:
            at = np.unique([c["sums"] for curve in curves for c in curve])
            errors = np.array([held(curve, at) for curve in curves])  # (splits, sums)
            pictures.error_by_sums(ax, {f"{clients} clients, mean of splits": (at, errors.mean(0))})
            ax.lines[-1].set_linestyle("--" if clients == 100 else "-")  # the two lie on each other
            ax.fill_between(at, errors.min(0), errors.max(0), alpha=0.15, label=f"{clients} clients, all splits")
    ax.axhline(aim, color="black", ls="--", lw=1, label="aim")
    ax.axhline(thesis_best(name, 10), color="grey", ls=":", label="the thesis's best federated, 10 clients")
    ax.axvline(limit, color="grey", lw=0.5, label="SUMs allowed")
    ax.set(title=name, yscale="log" if name == "sml" else "linear", xlim=(0, 1.03 * limit))
    if name == "sml":
        ax.set_yticks([0.2, 0.3, 0.5, 1.0], ["0.2", "0.3", "0.5", "1"])
        ax.set_yticks([], minor=True)
    ax.set_ylim((0.3, 0.7) if name == "bike" else None)  # its first rounds would hide the others
    ax.legend().set_visible(False)


def held(curve: list[dict], at: np.ndarray) -> np.ndarray:
    """The error after each number of SUMs: that of the last round finished by then."""
    sums = np.array([c["sums"] for c in curve])
    return np.array([c["test_rmse"] for c in curve])[np.maximum(np.searchsorted(sums, at, side="right") - 1, 0)]


def thesis_best(name: str, clients: int) -> float:
    return min(v[f"{name}-{clients}"] for m, v in EXPECTED["rmse"].items() if m != "Central GP")


# ---- the page of all that was run ----


def page(results: list[dict]) -> str:
    """The figures of FedBNR exact, then the thesis's four tables."""
    rows = keyed(results)
    titles = {"rmse": "3.1, RMSE", "ece": "3.2, ECE", "mce": "3.3, MCE", "brier": "3.4, Brier score"}
    parts = [f"{len(results)} runs.", "## FedBNR exact", markdown(figures(rows, results))]
    for measure, title in titles.items():
        parts += [f"## Table {title}", markdown(matrix(rows, measure, "ours"))]
    parts += [
        "## RMSE, least over rounds on the test rows (the thesis's way)",
        markdown(matrix(rows, "rmse", "rmse_min")),
    ]
    return "\n\n".join([*parts, LEGEND, earlier(), f"What differs from the paper: {DIFFERS}"]) + "\n"


def earlier() -> str:
    """What versions before this one reached, on the splits they were run on."""
    before = runs.finished(HERE / "results" / "uci" / "earlier.jsonl")
    parts = []
    for method, title in EARLIER.items():
        found = [r | {"method": "FedBNR exact"} for r in before if r["method"] == method]
        parts += [f"## FedBNR exact, {title}", markdown(figures(keyed(found), found))]
    return "\n\n".join(parts)


def keyed(results: list[dict]) -> dict[tuple, dict]:
    """The table's rows by (set, clients, method, measure)."""
    rows = {(r["data"], r["clients"], r["method"], r["metric"]): r for r in table(results)}
    return rows | {(name, 100, m, k): r for (name, c, m, k), r in rows.items() if c == 10 and m in CENTRAL}


EARLIER = {
    "FedBNR exact, without groups": "the version before: the same splits, no groups, CCPP with 200 frequencies",
    "FedBNR exact, calibrated before the refit": "the version before that: the same splits, standard inputs, calibrated before the refit",
    "FedBNR exact": "the first: splits 0 to 9, no refit, SML and CCPP with other settings",
}
MARK = "<!-- written by uci.py -->"
LEGEND = (
    "A cell is ours (the thesis's), after it the number of seeds where they are not 10; a star says that the clock stopped it. Marks: "
    "significantly worse than FedBNR exact with p < .01 (++) or p < .05 (+), better (-- and -), one-tailed Wilcoxon over seeds; none below "
    "five common seeds. Spread is the standard error of the mean."
)


def figures(rows: dict, results: list[dict]) -> list[dict]:
    """One row for each of the ten columns: ours, the aim, and what the thesis has at best."""
    found = []
    for name, clients in COLUMNS:
        if (name, clients, "FedBNR exact", "rmse") not in rows:
            continue
        rmse, ece, mce = (rows[name, clients, "FedBNR exact", m] for m in ("rmse", "ece", "mce"))
        central = EXPECTED["rmse"]["Central GP"][f"{name}-{clients}"]
        sums = max(
            r["sums"] for r in results if (r["set"], r["clients"], r["method"]) == (name, clients, "FedBNR exact")
        )
        found.append({
            "set": name, "clients": clients, "seeds": rmse["seeds"], "RMSE": rmse["ours"], "spread": rmse["spread"],
            "aim": EXPECTED["aim"]["rmse"][name], "thesis, best federated": thesis_best(name, clients), "thesis, central GP": central,
            "ECE": ece["ours"], "MCE": mce["ours"], "90 % covers": ece["cover90"], "ECE raw": ece["raw"], "SUMs at most": sums,
            "allowed": EXPECTED["aim"]["sums"][name], "SUMs to the best": rmse["sums_to_best"],
        })  # fmt: skip
    return found


def matrix(rows: dict, measure: str, key: str) -> list[dict]:
    """One row a method, one cell a column."""
    found = []
    for method in METHODS:
        cells = {f"{name} {c}": cell(rows.get((name, c, method, measure)), key) for name, c in COLUMNS}
        if any(cells.values()):
            found.append({"method": method, **cells})
    return found


def cell(row: dict | None, key: str) -> str:
    if row is None or row[key] is None:
        return ""
    mark = row["mark"] if key == "ours" else ""
    paper = "" if row["paper"] is None else f" ({row['paper']:g})"
    seeds = "" if row["seeds"] == 10 else f" [{row['seeds']}]"
    return f"{row[key]:.3g}{mark}{'*' if row['cut'] else ''}{paper}{seeds}"


def main() -> None:
    """Page and picture of the runs that are finished, however few."""
    out = HERE / "results" / "uci"
    results = [r for file in ("results.jsonl", "stacked.jsonl") for r in runs.finished(out / file)]
    (out / "table.md").write_text(page(results))
    draw(results, out / "rmse-by-sums.png")
    readme = HERE / "README.md"
    before, after = readme.read_text().split(MARK)[::2]
    readme.write_text(f"{before}{MARK}\n{markdown(figures(keyed(results), results))}\n{MARK}{after}")
    print(page(results))


if __name__ == "__main__":
    main()
