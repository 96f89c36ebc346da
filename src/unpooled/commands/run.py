"""`unpooled run FILE.toml [key=value ...]`: fit what a config file says, as a run that lasts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> argparse.ArgumentParser:
    parser = commands.add_parser("run", help="fit what a config file says", description=__doc__)
    parser.add_argument("file", type=Path, help="a TOML file with [model], [data] and [federation]")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="parameters of the model, or section.key=value"
    )
    parser.add_argument("--out", type=Path, help="the run folder to make (default: runs/MODEL-TIME)")
    parser.add_argument("--json", action="store_true", help="print JSON, the run folder last")
    return parser


def run(args: argparse.Namespace) -> int:
    from unpooled import config, runs

    folder = runs.create(config.override(config.read(args.file), args.overrides), args.out)
    return carry_on(folder, args.json)


def carry_on(folder: Path, as_json: bool) -> int:
    """Take a run folder to its end, with progress; Ctrl-C leaves it ready to be resumed."""
    from unpooled import runs
    from unpooled.progress import Progress
    from unpooled.report.page import write_report

    progress = Progress(quiet=as_json)
    try:
        estimator = runs.go(folder, progress)
    except KeyboardInterrupt:
        progress.close()
        print(f"unpooled: stopped; `unpooled resume {folder}` continues", file=sys.stderr)
        return 130
    finally:
        progress.close()
    write_report(folder)
    print(json.dumps({"run": str(folder)}) if as_json else _told(folder, estimator))
    return 0


def _told(folder: Path, estimator: Any) -> str:
    rounds = f"{type(estimator).__name__}: {estimator.n_iter_} rounds"
    reached = f", loglik {estimator.lower_bound_:.6g} a row" if hasattr(estimator, "lower_bound_") else ""
    return f"{rounds}{reached}\nreport: {folder / 'report.html'}\n{folder}"
