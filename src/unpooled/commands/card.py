"""`unpooled card RUN`: the run's model card in Markdown and HTML: intended use, data by site, metrics, privacy, limits."""

from __future__ import annotations

import argparse
from typing import Any

from unpooled.commands import add_run, show


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled card`."""
    parser = commands.add_parser("card", help="write a run's model card", description=__doc__)
    parser.add_argument("--use", default="", help="what the model is meant for, in a sentence")
    add_run(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write card.md and card.html into the run's folder and print their paths."""
    from unpooled.report.card import write_card

    paths = write_card(args.folder, args.use)
    return show(args, {"card": [str(p) for p in paths]}, "\n".join(map(str, paths)))
