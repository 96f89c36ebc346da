"""Tables of what has been measured on CIFAR-10 so far: `python experiments/fedconceptem/_cifar_tables.py [--compressed] [FILE ...]`.

The finished measurements of the files are added to results/cifar10, results/cifar10_encoded and results/cifar10_alone first; then
table.md and table.json of these folders are written. With --compressed those of table 1 come under a name of their own: they were made
with all 10,000 test images, from images that were compressed.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compressed", action="store_true")
    parser.add_argument("files", nargs="*", type=Path)
    args = parser.parse_args()
    for part, (name, experiment) in FOLDERS.items():
        folder = _tables.RESULTS / name
        renamed = jobs.COMPRESSED if args.compressed and part == "encoded" else part
        add(part, args.files, folder / "measurements.jsonl", renamed)
        found = _tables.measured(folder / "measurements.jsonl")
        rows = sorted(jobs.rows(found), key=lambda row: (row["part"], row["split"], row["options"][:20], -row["ours"]))
        write(
            folder,
            rows,
            f"{experiment.__doc__.splitlines()[0]}\n\n{{}}\n\nWhat differs from the paper: {experiment.DIFFERS}\n",
        )
    add("alone", args.files, _tables.RESULTS / ALONE / "measurements.jsonl", "alone")
    rows = beside_alone(_tables.measured(_tables.RESULTS / ALONE / "measurements.jsonl"))
    title = "What each client can expect of what it keeps, beside training alone with the same network, rate and rounds (_alone.py)"
    write(_tables.RESULTS / ALONE, rows, f"{title}.\n\n{{}}\n")


def write(folder: Path, rows: list[dict], text: str) -> None:
    """Write table.json and table.md; the table takes the place of {} in the text."""
    (folder / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "table.md").write_text(text.format(markdown(rows)))
    print((folder / "table.md").read_text())


def beside_alone(found: list[dict]) -> list[dict]:
    """One row a seed and split: clients' expected accuracy, kept and alone, in %, and their differences in points."""
    groups: dict[tuple, dict[str, dict]] = {}
    for one in found:
        groups.setdefault((one["split"], one["seed"]), {})[one["method"]] = one["by_client"]
    out = []
    for (split, seed), both in sorted(groups.items()):
        if {jobs.OURS, "Local"} <= set(both):
            kept, alone = (100 * np.array(list(both[name].values())) for name in (jobs.OURS, "Local"))
            gains = kept - alone
            row = {"split": split, "seed": seed, "clients": len(gains), "kept": kept.mean(), "alone": alone.mean()}
            row |= {"mean gain": gains.mean(), "worst client": gains.min(), "lose over 1 point": (gains < -1).mean()}
            out.append({name: value if isinstance(value, (str, int)) else float(value) for name, value in row.items()})
    return out


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
