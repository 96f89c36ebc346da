"""Tables of whatever has been measured so far: `python experiments/fedgem/_tables.py` writes results/*/measured.md, ranks and curves.

The lines of measured.jsonl are sorted on the way.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from _ranks import rank_table
from _runs import read, table

from unpooled.commands.reproduce import markdown

RESULTS = Path(__file__).parent / "results"


def sorted_rows(folder: Path) -> list[dict]:
    """All lines of the folder, sorted in the file from now on; of a cell measured twice the first counts."""
    rows = {(row["case"], row["method"], row["seed"]): row for row in reversed(read(folder))}
    ordered = [rows[cell] for cell in sorted(rows)]
    (folder / "measured.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ordered))
    return ordered


def write(file: Path, opening: str, lines: list[dict]) -> None:
    text = markdown(lines)
    file.write_text(f"{opening}\n\n{text}\n")
    print(file.relative_to(RESULTS), text, "", sep="\n")


def report(folder: Path) -> None:
    """The folder's table, and the picture and the ranks if its experiment has them."""
    rows, experiment = sorted_rows(folder), import_module(folder.name)
    write(folder / "measured.md", "Measured so far:", getattr(experiment, "lines", table)(rows))
    if hasattr(experiment, "picture"):
        experiment.picture(rows, folder)
    if folder.name == "real_data":
        write(
            folder / "ranks.md", "Mean ranks by pooled ARI (1 is best), of what was measured so far:", rank_table(rows)
        )


if __name__ == "__main__":
    for found in sorted({file.parent for file in RESULTS.glob("*/*.jsonl")}):
        report(found)
