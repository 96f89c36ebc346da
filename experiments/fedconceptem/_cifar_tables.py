"""Tables of what has been measured on CIFAR-10 so far: `python experiments/fedconceptem/_cifar_tables.py [FILE ...]`.

The finished measurements of the files are added to results/cifar10 and results/cifar10_encoded first; then table.md and table.json of
both folders are written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import _jobs as jobs
import _tables
import cifar10
import cifar10_encoded

from unpooled.commands.reproduce import markdown

FOLDERS = {"cifar10": ("cifar10", cifar10), "encoded": ("cifar10_encoded", cifar10_encoded)}


def main() -> None:
    for part, (name, experiment) in FOLDERS.items():
        folder = _tables.RESULTS / name
        folder.mkdir(exist_ok=True)
        add(part, [Path(file) for file in sys.argv[1:]], folder / "measurements.jsonl")
        found = _tables.measured(folder / "measurements.jsonl")
        rows = sorted(jobs.rows(found), key=lambda row: (row["split"], -row["ours"]))
        (folder / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
        text = f"{experiment.__doc__.splitlines()[0]}\n\n{markdown(rows)}\n\nWhat differs from the paper: {experiment.DIFFERS}\n"
        (folder / "table.md").write_text(text)
        print(text)


def add(part: str, files: list[Path], into: Path) -> None:
    """The measurements of one table that `into` does not hold yet, without the pilot's."""
    seen = {_tables.identity(r) for r in _tables.finished(into)}
    new = [r for file in files for r in _tables.finished(file) if r["part"] == part and r["seed"] != jobs.PILOT_SEED]
    with open(into, "a") as out:
        out.writelines(json.dumps(r) + "\n" for r in new if _tables.identity(r) not in seen)


if __name__ == "__main__":
    main()
