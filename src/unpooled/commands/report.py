"""`unpooled report RUN`: one HTML file that opens offline and says what was asked, who took part and what left."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled report`."""
    parser = commands.add_parser("report", help="write a run's report as one HTML file", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write report.html into the run's folder and print its path."""
    from unpooled.report.page import write_report

    path = write_report(args.folder)
    print(json.dumps({"report": str(path)}) if args.json else path)
    return 0
