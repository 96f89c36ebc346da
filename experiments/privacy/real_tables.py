"""Private mixtures on published tables: ccpp (power plant), beijing (weather), s1 (15 clusters in the plane)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from _gaps import gaps, row
from _kept import Kept
from _problems import TABLES, split

SEEDS = 5
EPSILONS = (0.5, 1.0, 2.0, 4.0)
DIFFERS = (
    "there is no paper; tables come from UNPOOLED_DATA, bounds from knowledge of the columns. "
    "Settings were found on drawn mixtures; these tables were looked at when the start was improved."
)
GOALS = {("ccpp", 1.0): ".10", ("beijing", 1.0): ".05", ("s1", 1.0): ".37", ("s1", 4.0): ".05"}


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    table = []
    for name in TABLES:
        say(name)
        first = split(name, 0)
        problems = [partial(split, name, seed) for seed in range(1 if small else seeds)]
        what = {"table": name, "rows": len(first.train), "columns": first.train.shape[1], "components": first.k}
        methods = {"ours": EPSILONS} if small else {"ours": EPSILONS, "DP-EM": EPSILONS}
        found = gaps(name, problems, methods, Kept(out / "trials.jsonl"))
        table += [row(what, m, e, v, GOALS.get((name, e), "") if m == "ours" else "") for (m, e), v in found.items()]
    return table
