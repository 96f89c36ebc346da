"""`unpooled resume RUN`: continue a run that was stopped or killed, to the same bits."""

from __future__ import annotations

import argparse
from typing import Any

from unpooled.commands import add_run
from unpooled.commands.run import carry_on


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled resume`."""
    parser = commands.add_parser("resume", help="continue a stopped run", description=__doc__)
    add_run(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Continue the run from its last checkpoint."""
    return carry_on(args.folder, args.json)
