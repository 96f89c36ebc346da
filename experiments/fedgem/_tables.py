"""Tables of whatever has been measured so far: `python experiments/fedgem/_tables.py` writes results/*/measured.md."""

from __future__ import annotations

from pathlib import Path

from _runs import read, table
from real_data import paper

from unpooled.commands.reproduce import markdown

RESULTS = Path(__file__).parent / "results"

if __name__ == "__main__":
    for file in sorted(RESULTS.glob("*/*.jsonl")):
        text = markdown(table(read(file), paper()))
        (file.parent / "measured.md").write_text(f"Measured so far ({file.name}):\n\n{text}\n")
        print(text, "\n")
