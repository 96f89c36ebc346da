"""`unpooled status`: the nodes of a link, whether they are connected, and its runs with their rounds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unpooled.commands import add_json, show
from unpooled.commands.serve import add_link


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled status`."""
    parser = commands.add_parser("status", help="nodes, runs and rounds of a link", description=__doc__)
    add_link(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders are (default: runs)")
    add_json(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the link's nodes and runs, and the rounds of run folders."""
    from unpooled.remote.engines import engine
    from unpooled.remote.link import Link

    link = Link.open(args.link.expanduser())
    found = {"address": link.address, **engine(link.engine).status(link)}
    found["rounds"] = _rounds(args.runs)
    return show(args, found, _text(found))


def _rounds(folder: Path) -> dict[str, int]:
    """run folder -> rounds finished."""
    histories = sorted(folder.glob("*/history.jsonl"))
    return {h.parent.name: h.read_text().count("\n") for h in histories}


def _text(found: dict[str, Any]) -> str:
    """The status in lines."""
    nodes = found["nodes"]
    runs = found["runs"]
    lines = [f"link {found['address']}: {len(nodes)} nodes, {len(runs)} runs"]
    lines += [f"  node {node['name'] or node['id']}: {node['status']}" for node in nodes]
    lines += [f"  run {run['id']}: {run['status']} since {run['since'][:19]}" for run in runs[:10]]
    lines += [f"  {name}: {rounds} rounds" for name, rounds in found["rounds"].items()]
    return "\n".join(lines)
