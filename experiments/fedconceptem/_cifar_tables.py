"""Tables of what has been measured on CIFAR-10 so far: `python experiments/fedconceptem/_cifar_tables.py [--name NAME] [FILE ...]`.

The finished measurements of the files are added to results/cifar10, results/cifar10_encoded and results/cifar10_alone first; then
table.md and table.json of these folders are written. The last two get measurements under a NAME of their own ("complete": all
images as they are; "compressed": all images, of 470 bytes each), which is added to their part.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import _jobs as jobs
import _tables
import cifar10
import cifar10_encoded
import numpy as np

from unpooled.commands.reproduce import markdown

FOLDERS = {"cifar10": ("cifar10", cifar10), "encoded": ("cifar10_encoded", cifar10_encoded)}
ALONE = "cifar10_alone"
TITLE = (
    "What each client can expect of what it keeps, beside training alone with the same network, rate and rounds (_alone.py). "
    "'100 clients' were dealt one copy of CIFAR-10 and trained on a CPU, those with a corruption tested with 1,000 images drawn by "
    "their label shares; alone is there the mean of two networks from random starts, and 'Local, another start' shows what the start "
    "alone does: kept is the second, alone the first. Standard errors are those of the test images, without regard to images "
    "that both models miss: at most so large. 'Prior of networks': with the prior that candidates have where there are networks; before, "
    "theirs was that of linear learners."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", help="of these measurements, in tables")
    parser.add_argument("files", nargs="*", type=Path)
    args = parser.parse_args()
    for part, (name, experiment) in FOLDERS.items():
        folder = _tables.RESULTS / name
        add(part, args.files, folder / "measurements.jsonl", _named(part, args.name if part == "encoded" else None))
        found = _tables.measured(folder / "measurements.jsonl")
        rows = sorted(jobs.rows(found), key=lambda row: (row["part"], row["split"], row["options"][:20], -row["ours"]))
        write(
            folder,
            rows,
            f"{experiment.__doc__.splitlines()[0]}\n\n{{}}\n\nWhat differs from the paper: {experiment.DIFFERS}\n",
        )
    add("alone", args.files, _tables.RESULTS / ALONE / "measurements.jsonl", _named("alone", args.name))
    rows = beside_alone(_tables.measured(_tables.RESULTS / ALONE / "measurements.jsonl"))
    write(_tables.RESULTS / ALONE, rows, f"{TITLE}\n\n{{}}\n")


def _named(part: str, name: str | None) -> str:
    return f"{part}, {name}" if name else part


def write(folder: Path, rows: list[dict], text: str) -> None:
    """Write table.json and table.md; the table takes the place of {} in the text."""
    (folder / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "table.md").write_text(text.format(markdown(rows)))
    print((folder / "table.md").read_text())


AGAIN = "Local, another start"


def beside_alone(found: list[dict]) -> list[dict]:
    """Rows of clients with and without corruptions, for each seed: expected accuracy, kept and alone, in %, and differences in points.

    Where clients trained alone from two random starts, a network alone is the mean of both; the second one beside the first shows luck.
    """
    groups: dict[tuple, dict[str, dict]] = {}
    for one in found:
        method = AGAIN if "random_state" in one["options"] else one["method"]
        groups.setdefault((one["part"], one["split"], one["seed"]), {})[method] = one
    out = []
    for (part, split, seed), runs in sorted(groups.items()):
        named = {"part": part, "split": split, "seed": seed}
        alone = [runs[name] for name in ("Local", AGAIN) if name in runs]
        pairs = [(jobs.OURS, alone), (AGAIN, alone[:1])]
        out += [
            named | {"what": what} | row
            for what, others in pairs
            if what in runs and others
            for row in _gains(runs[what], others)
        ]
    return out


def _gains(kept: dict, alone: list[dict]) -> list[dict]:
    """Two rows, of clients with corruptions and without; one of all where it was not written down."""
    names = np.array(list(kept["by_client"]))
    both = [100 * np.array([[run["by_client"][name] for name in names] for run in runs]) for runs in ([kept], alone)]
    values = [both[0].mean(0), both[1].mean(0), _errors(names, kept, alone)]
    if "corruptions" not in kept:
        return [_gain("all", *values)]
    corrupted = np.array([bool(kept["corruptions"][name]) for name in names])
    return [
        _gain(word, *(value[which] for value in values))
        for word, which in (("corrupted", corrupted), ("as they are", ~corrupted))
    ]


def _errors(names: np.ndarray, kept: dict, alone: list[dict]) -> np.ndarray:
    """Standard errors of the differences, in points, at most: models that miss the same images have smaller ones."""
    runs = [kept, *alone]
    if not all("errors" in run for run in runs):
        return np.full(len(names), np.nan)
    weights = [1.0] + [1 / len(alone)] * len(alone)
    squares = [[(weight * run["errors"][name]) ** 2 for name in names] for weight, run in zip(weights, runs)]
    return np.asarray(100 * np.sqrt(np.sum(squares, 0)))


def _gain(images: str, kept: np.ndarray, alone: np.ndarray, errors: np.ndarray) -> dict:
    gains = kept - alone
    row = {"images": images, "clients": len(gains), "lose over 1 point": int((gains < -1).sum())}
    means = {"kept": kept.mean(), "alone": alone.mean(), "mean gain": gains.mean(), "worst client": gains.min()}
    row |= {name: float(value) for name, value in means.items()}
    error = None if np.isnan(errors).any() else float(errors[gains.argmin()])
    return row | {"standard error of the worst": error}


def add(part: str, files: list[Path], into: Path, renamed: str) -> None:
    """The measurements of one table that `into` does not hold yet, without the pilot's, under the name `renamed`."""
    into.parent.mkdir(exist_ok=True)
    seen = {_tables.identity(r) for r in _tables.finished(into)}
    found = [r for file in files for r in _tables.finished(file) if r["part"] == part and r["seed"] != jobs.PILOT_SEED]
    new = [r | {"part": renamed} for r in found]
    with open(into, "a") as out:
        out.writelines(json.dumps(r) + "\n" for r in new if _tables.identity(r) not in seen)


if __name__ == "__main__":
    main()
