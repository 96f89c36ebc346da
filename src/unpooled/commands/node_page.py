"""`unpooled node page`: a page on this machine with what left the node, studies to approve or refuse, and the budget, until Ctrl-C."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unpooled.commands.node_study import add_node
from unpooled.commands.watch import add_page_options, serve


def add_parser(inner: Any) -> None:
    """The command, as a part of `unpooled node`."""
    parser = inner.add_parser("page", help="review studies and see what left, in a browser", description=__doc__)
    parser.add_argument("study", type=Path, nargs="*", help="studies to review, besides those in the folder `waiting`")
    add_node(parser)
    add_page_options(parser)


def run(args: argparse.Namespace) -> int:
    """Serve the site's page until Ctrl-C."""
    from unpooled import study
    from unpooled.node import config
    from unpooled.pages import node

    node_config = config.read(args.node)
    for path in args.study:
        study.read(path)  # refuses a file that is not a study before the page opens
    return serve(node.serve(node_config, args.study, args.port), args)
