"""`unpooled check DATA`: compare the tables of all sites before anything is fitted, and write [columns] to start from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from unpooled.commands import link_options, say


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled check`."""
    parser = commands.add_parser("check", help="compare the tables of all sites before a fit", description=__doc__)
    parser.add_argument(
        "data",
        nargs="?",
        metavar="DATA",
        help="a folder, a glob or a file of tables; or a config with [data] or a link",
    )
    parser.add_argument("--on", metavar="LINK", help="check the nodes of a link: its HOST:PORT or its folder")
    parser.add_argument("--by", metavar="COLUMN", help="the column that holds the site, where DATA is one file")
    parser.add_argument("--label", metavar="COLUMN", help="the column of labels")
    parser.add_argument(
        "--columns", type=Path, metavar="FILE", help="a config or study whose [columns] tables should follow"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page to this file")
    parser.add_argument("--toml", type=Path, metavar="FILE", help="write the [columns] to start from to this file")
    parser.add_argument("--json", action="store_true", help="print findings and columns as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print what differs between sites, and write the page and [columns] where asked; 1 when something was found."""
    from unpooled import store

    found = _check(args)
    if args.html:
        found.save(args.html)
    if args.toml:
        store.write_file(args.toml, found.toml.encode())
    if args.json:
        findings = [f._asdict() for f in found.findings]
        print(json.dumps({"findings": findings, "columns": found.columns}))
    else:
        print(found)
        if not args.toml:
            print(f"\nto start from:\n\n{found.toml}", end="")
    return 1 if found.findings else 0


def _check(args: argparse.Namespace) -> Any:
    """The check of a folder, of one file by its column of sites, of a config's data, or of a link."""
    from unpooled import config
    from unpooled.checking import check
    from unpooled.errors import BadParameter

    sections = config.read(Path(args.data)) if args.data and args.data.endswith(".toml") else {}
    data = sections.get("data", {})
    kinds = config.read(args.columns).get("columns") if args.columns else sections.get("columns")
    label = args.label or data.get("label")
    link = args.on or sections.get("federation", {}).get("link")
    if link:
        return _over_link(link, kinds, label, sections)
    path = data.get("path") if sections else args.data
    if path is None:
        raise BadParameter("there is nothing to check: name a folder or a file of tables, or a link with --on")
    return check(path, by=args.by or data.get("by"), label=label, columns=kinds, sites=sections.get("sites"))


def _over_link(link: str, kinds: Any, label: str | None, sections: dict[str, Any]) -> Any:
    """The check of a link's nodes: each sends the profile that its policy allows."""
    from unpooled.checking import compared
    from unpooled.data.schema import Schema, Wanted
    from unpooled.remote.engines import connect
    from unpooled.remote.link import find

    declared = None if kinds is None else Schema.from_toml(kinds)
    with connect(Path(find(link)), say=say, **link_options(sections)) as fed:
        profiles = fed.profiles(Wanted(declared, label))
    return compared(profiles, declared, label)
