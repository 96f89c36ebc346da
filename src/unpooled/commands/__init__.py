"""The commands of `unpooled`, one per file: `add_parser(subparsers)` declares the arguments, `run(args) -> int` runs it.

What several of them share is here.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

EXTRAS = {  # module -> the extra that installs it
    "torch": "torch",
    "flwr": "flower",
    "httpx": "flower",
    "cryptography": "flower",
    "sqlalchemy": "sql",
    "psycopg": "sql",
    "matplotlib": "plot",
    "pyarrow": "parquet",
    "starlette": "pages",
    "uvicorn": "pages",
}


def add_run(parser: argparse.ArgumentParser) -> None:
    """The arguments of commands about a run folder: RUN and --json."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="the run's folder")
    add_json(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def show(args: argparse.Namespace, found: dict[str, Any], text: object) -> int:
    """Print what was found as JSON where --json was given, else the text; the exit code 0."""
    print(json.dumps(found) if args.json else text)
    return 0


def say(text: str) -> None:
    """Print progress to standard error."""
    print(f"unpooled: {text}", file=sys.stderr)


def link_options(sections: dict[str, Any]) -> dict[str, Any]:
    """The options of a connection that [federation] of a config sets."""
    network = sections.get("federation", {})
    return {k: network[k] for k in ("min_clients", "timeout", "wait") if k in network}
