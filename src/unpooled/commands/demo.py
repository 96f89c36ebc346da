"""`unpooled demo`: six hospitals with missing values, one model, equal to the pooled fit; leaves a report to open."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unpooled.commands import add_json, show

CONFIG = """\
[model]
name = "GaussianMixture"
n_components = 3
tol = 1e-6
max_iter = 500
random_state = 0

[data]
builtin = "hospitals"

[federation]
mode = "one by one"
"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled demo`."""
    parser = commands.add_parser(
        "demo", help="fit six built-in hospitals and show that it equals the pooled fit", description=__doc__
    )
    parser.add_argument("--out", type=Path, default=None, help="the run folder (default: demo/)")
    add_json(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Fit the built-in hospitals as a run, compare with the pooled fit, and write the report."""
    from unpooled import config, runs, store
    from unpooled.progress import Progress
    from unpooled.report.page import write_report

    folder = args.out or Path("demo")
    if args.out is None and folder.exists():
        _clear(folder)
    store.write_file(folder / "demo.toml", CONFIG.encode())
    runs.create(config.read(folder / "demo.toml"), folder)
    progress = Progress(quiet=args.json)
    model = runs.go(folder, progress)
    progress.close()
    difference = against_pooled(model)
    report = write_report(folder, {"largest relative difference from the pooled fit": f"{difference:.1e}"})
    found = {"run": str(folder), "report": str(report), "difference": difference, "rounds": model.n_iter_}
    return show(args, found, summary(model, difference, report))


def _clear(folder: Path) -> None:
    """Delete the folder of an earlier demo; refuse to delete a folder that holds anything else."""
    import shutil

    from unpooled.errors import RunError

    if any(folder.iterdir()) and not (folder / "demo.toml").exists():
        raise RunError(f"{folder}/ is there already and is not of an earlier demo: choose another folder with --out")
    shutil.rmtree(folder)


def against_pooled(model: Any) -> float:
    """Fit the same rows in one table from the same start; the largest relative difference of any parameter."""
    import numpy as np

    from unpooled.data import builtin
    from unpooled.data.federate import federate
    from unpooled.estimator import Moment

    table = builtin.load("hospitals")
    fed = federate(table)
    pooled = federate(np.concatenate([table.clients[name] for name in table.clients]))
    first = next(iter(model.__class__(**model.get_params()).rounds(fed)))
    central = model.__class__(**model.get_params())
    for _ in central.rounds(pooled, Moment(first.state, [], first.seed, first.round, {}, False)):
        pass
    differences = []
    for name in ("weights_", "means_", "covariances_"):
        ours = getattr(model, name)
        theirs = getattr(central, name)
        differences.append(float(np.abs(ours - theirs).max() / np.abs(theirs).max()))
    return max(differences)


def summary(model: Any, difference: float, report: Path) -> str:
    """What the demo prints: rows of each hospital, the fit, and how far it is from the pooled one."""
    from unpooled.data import builtin

    table = builtin.load("hospitals")
    rows = {name: len(x) for name, x in table.clients.items()}
    missing = {name: float((x != x).mean()) for name, x in table.clients.items()}
    lines = [f"  {name:<14}{rows[name]:>5} rows, {missing[name]:>4.0%} of values missing" for name in rows]
    return "\n".join(
        [
            f"{len(rows)} hospitals that cannot pool their rows:",
            *lines,
            f"one mixture of {model.n_components_} Gaussians over all of them, from a start by sums and {model.n_iter_} rounds;",
            f"largest relative difference from the fit on pooled rows: {difference:.1e}",
            f"open {report}",
        ]
    )
