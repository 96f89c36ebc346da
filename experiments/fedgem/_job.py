"""Measure the cells of an experiment that match, so that several processes can work on one experiment.

    python experiments/fedgem/_job.py sensitivity --seeds 3-5 --methods "OpenMixture auto"
    python experiments/fedgem/_job.py real_data --seeds 0-4 --cases mnist --methods "central GMM" FedGEM

Without --methods all methods, without --cases all cases. `_tables.py` computes the tables.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib import import_module
from pathlib import Path

from _runs import Cell, collect

RESULTS = Path(__file__).parent / "results"


def matches(cell: Cell, seeds: range, cases: list[str], methods: list[str]) -> bool:
    case, method, seed = cell
    return seed in seeds and (not cases or case in cases) and (not methods or method in methods)


def span(text: str) -> range:
    """ "3-5" or "3"."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("--seeds", type=span, required=True)
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=[])
    args = parser.parse_args()
    module = import_module(args.experiment)
    chosen = partial(matches, seeds=args.seeds, cases=args.cases, methods=args.methods)
    say = partial(print, flush=True)
    collect(RESULTS / args.experiment, module.plans(False, max(module.SEEDS, args.seeds[-1] + 1)), say, chosen)


if __name__ == "__main__":
    main()
