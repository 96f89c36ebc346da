"""`unpooled run FILE.toml [key=value ...]`: fit what a config file says, as a run that can be resumed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled run`."""
    parser = commands.add_parser("run", help="fit what a config file says", description=__doc__)
    parser.add_argument("file", type=Path, help="a TOML file with [model], [data] and [federation]")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="parameters of the model, or section.key=value"
    )
    parser.add_argument("--on", metavar="LINK", help="run over the nodes of a link: its HOST:PORT or its folder")
    parser.add_argument("--out", type=Path, help="the run folder to make (default: runs/MODEL-TIME)")
    parser.add_argument("--json", action="store_true", help="print JSON, the run folder last")
    return parser


def run(args: argparse.Namespace) -> int:
    """Make the run's folder, fit, and write its report; an approved study takes no overrides."""
    from unpooled import config, runs
    from unpooled import study as studies
    from unpooled.errors import BadParameter

    study = studies.read(args.file) if studies.is_study(config.read(args.file)) else None
    if study is not None and args.overrides:
        raise BadParameter("a study is run as it was approved: change its file and have the sites approve it anew")
    wanted = config.override(config.read(args.file), args.overrides)
    if args.on:
        from unpooled.remote.link import find

        wanted.setdefault("federation", {})["link"] = str(find(args.on))
    folder = runs.create(wanted, args.out, study)
    return carry_on(folder, args.json)


def carry_on(folder: Path, as_json: bool) -> int:
    """Run a folder to its end and show progress; after Ctrl-C it can be resumed."""
    from unpooled import runs
    from unpooled.progress import Progress
    from unpooled.report.page import write_report

    progress = Progress(quiet=as_json)
    try:
        with clients_of(folder) as fed:
            estimator = runs.go(folder, progress, fed)
    except KeyboardInterrupt:
        progress.close()
        print(f"unpooled: stopped; `unpooled resume {folder}` continues", file=sys.stderr)
        return 130
    finally:
        progress.close()
    write_report(folder)
    print(json.dumps({"run": str(folder)}) if as_json else _summary(folder, estimator))
    return 0


@contextmanager
def clients_of(folder: Path) -> Iterator[Any]:
    """The nodes of the link that a run's config names, while the block lasts; None if its clients are files."""
    from unpooled import config, runs

    sections = config.read(runs.config_of(folder))
    network = sections.get("federation", {})
    if "link" not in network:
        yield None
        return
    from unpooled.remote.engines import connect

    study = runs.study_of(folder)
    options: dict[str, Any] = {k: network[k] for k in ("min_clients", "timeout", "wait") if k in network}
    if study is not None:
        options |= {"study": study, "names": study.names, "min_clients": study.min_cohort}
    say = lambda text: print(f"unpooled: {text}", file=sys.stderr)  # noqa: E731
    options |= {"columns": sections["data"].get("columns"), "wanted": config.wanted(sections)}
    with connect(Path(network["link"]), say=say, **options) as fed:
        yield runs.with_layers(fed, folder, sections)


def _summary(folder: Path, estimator: Any) -> str:
    """What is printed at the end: rounds, log-likelihood where there is one, report and folder."""
    rounds = f"{type(estimator).__name__}: {estimator.n_iter_} round{'s' if estimator.n_iter_ != 1 else ''}"
    reached = f", loglik {estimator.lower_bound_:.6g} per row" if hasattr(estimator, "lower_bound_") else ""
    return f"{rounds}{reached}\nreport: {folder / 'report.html'}\n{folder}"
