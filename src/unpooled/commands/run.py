"""`unpooled run FILE.toml [key=value ...]`: fit what a config file says, as a run that can be resumed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unpooled.commands import link_options, say


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled run`."""
    parser = commands.add_parser("run", help="fit what a config file says", description=__doc__)
    parser.add_argument("file", type=Path, help="a TOML file with [model], [data] and [federation]")
    add_options(parser, "parameters of the model", "MODEL")
    return parser


def add_options(parser: argparse.ArgumentParser, parameters: str, model: str) -> None:
    """Options of commands that make a run: overrides, --on, --out and --json."""
    text = f"{parameters}, or section.key=value"
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=text)
    parser.add_argument("--on", metavar="LINK", help="run over the nodes of a link: its HOST:PORT or its folder")
    parser.add_argument("--out", type=Path, help=f"the run folder to make (default: runs/{model}-TIME)")
    parser.add_argument("--json", action="store_true", help="print JSON, the run folder last")


def run(args: argparse.Namespace) -> int:
    """Make the run's folder, fit, and write its report; an approved study takes no overrides."""
    return carry_on(make_folder(args, *read_file(args)), args.json)


def read_file(args: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """(sections of the config file, the study if it is one); overrides of a study are refused."""
    from unpooled import config
    from unpooled import study as studies
    from unpooled.errors import BadParameter

    wanted = config.read(args.file)
    study = studies.read(args.file) if studies.is_study(wanted) else None
    if study is not None and args.overrides:
        raise BadParameter("a study is run as it was approved: change its file and have the sites approve it anew")
    return wanted, study


def make_folder(args: argparse.Namespace, wanted: dict[str, Any], study: Any) -> Path:
    """The folder of a run of this config, with the overrides and the link of the command line."""
    from unpooled import config, runs

    wanted = config.override(wanted, args.overrides)
    if args.on:
        from unpooled.remote.link import find

        wanted.setdefault("federation", {})["link"] = str(find(args.on))
    return runs.create(wanted, args.out, study)


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
        say(f"stopped; `unpooled resume {folder}` continues")
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
    options = link_options(sections)
    if study is not None:
        options |= {"study": study, "names": study.names, "min_clients": study.min_cohort}
    options |= {"columns": sections["data"].get("columns"), "wanted": config.wanted(sections)}
    with connect(Path(network["link"]), say=say, **options) as fed:
        yield runs.with_layers(fed, folder, sections)


def _summary(folder: Path, estimator: Any) -> str:
    """What is printed at the end: rounds, log-likelihood where there is one, report and folder."""
    rounds = f"{type(estimator).__name__}: {estimator.n_iter_} round{'s' if estimator.n_iter_ != 1 else ''}"
    reached = f", loglik {estimator.lower_bound_:.6g} per row" if hasattr(estimator, "lower_bound_") else ""
    return f"{rounds}{reached}\nreport: {folder / 'report.html'}\n{folder}"
