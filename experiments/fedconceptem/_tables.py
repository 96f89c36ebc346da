"""What the experiments of this folder share: measure a list of jobs, one after the other, and make their table.

    python experiments/fedconceptem/_tables.py [--merge FILE]

writes results/table.md, table.json and the tables of the README from all that results/measurements.jsonl holds, after
adding what a batch has measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import _jobs as jobs
import _measure
import numpy as np
from _plan import key, missing
from _verdict import verdicts

from unpooled.commands.reproduce import markdown
from unpooled.datasets import shift

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- written by _tables.py -->", "<!-- end -->"
DIFFERS = (
    "corruptions are our own eleven kinds in SciPy, severity 1 to 5; the CNN has two convolutions and two dense layers; one "
    "learning rate, cosine schedule and batches of 32 for all methods; accuracy is that of the last round, not of the round of "
    "best training accuracy; an unseen client adapts on 1,000 labelled rows and is tested on the other 9,000. Small: "
    "scikit-learn's digits, 30 clients, an mlp, constant rate, batches of 8."
)


def run(wanted: list[dict], small: bool, out: Path, say: Callable[[str], None]) -> list[dict]:
    """Measure what `out` does not hold yet; every result is written as soon as it is there."""
    file = out / "measurements.jsonl"
    found = [] if small else measured(file)
    seen = {identity(r) for r in found}
    for one in wanted:
        if identity(one) in seen:
            continue
        say(f"{one['method']}, {one['split']}, seed {one['seed']} {one.get('options', '')}")
        found.append(_measure.measure(one, small, device()))
        file.write_text("".join(json.dumps(r) + "\n" for r in found))
    return jobs.rows(found)


def measured(file: Path) -> list[dict]:
    """The finished measurements of a file, without the pilot's; none where there is no file."""
    return [r for r in finished(file) if r["part"] != "pilot"]


def finished(file: Path) -> list[dict]:
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [r for r in lines if "global" in r]


def merge(file: Path, into: Path) -> None:
    """Add the finished measurements of a batch that are not there yet."""
    seen = {key(r) for r in finished(into)}
    with open(into, "a") as out:
        out.writelines(json.dumps(r) + "\n" for r in finished(file) if key(r) not in seen)


def pilots(found: list[dict]) -> list[dict]:
    """What other steps a round do to the distance between methods, on the pilot's split."""
    rows = jobs.rows([r for r in found if r["part"] == "pilot" and "batch_size" in r["options"]])
    shown = ("method", "split", "options", "rounds", "ours", "local", "clients in the right concept", "concepts found")
    return [{k: row.get(k) for k in shown} for row in rows]


def one_model_at_most(concepts: int = 3, classes: int = 10) -> float:
    """The best global accuracy of any method that gives all newcomers the same model: the concepts call the same input
    by other labels, and it can answer with one. Classes are equally frequent.
    """
    maps = shift.label_maps(concepts, classes)
    return float(np.mean([np.unique(labels, return_counts=True)[1].max() / concepts for labels in maps.T]))


def identity(one: dict) -> tuple:
    return (*jobs.setting(one), one["seed"], one["rounds"])


def device() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return "cuda" if torch.cuda.is_available() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--merge", type=Path, help="measurements.jsonl of a batch")
    file, more = RESULTS / "measurements.jsonl", parser.parse_args().merge
    if more:
        merge(more, file)
    found = measured(file)
    rows = sorted(jobs.rows(found), key=lambda row: (row["part"], row["split"], -row["ours"]))
    (RESULTS / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    text = f"{markdown(verdicts(found))}\n\n{len(found)} runs:\n\n{markdown(rows)}\n\n"
    text += (
        f"The pilot's split (seed {jobs.PILOT_SEED}), other steps a round:\n\n{markdown(pilots(finished(file)))}\n\n"
    )
    text += missing(finished(file)) + "\n\n"
    text += f"One model for all newcomers (FedAvg, APFL, pFedMe, Local) can have {100 * one_model_at_most():.0f} % at most.\n"
    (RESULTS / "table.md").write_text(f"{text}\nWhat differs from the paper: {DIFFERS}\n")
    readme = RESULTS.parent / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    readme.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")
    print(text)


if __name__ == "__main__":
    main()
