"""`unpooled report RUN`: one HTML file that opens offline and says what was asked, who took part and what left."""

from __future__ import annotations

import argparse
from typing import Any

from unpooled.commands import add_run, show


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled report`."""
    parser = commands.add_parser("report", help="write a run's report as one HTML file", description=__doc__)
    add_run(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write report.html into the run's folder and print its path."""
    from unpooled.report.page import write_report

    path = write_report(args.folder)
    return show(args, {"report": str(path)}, path)
