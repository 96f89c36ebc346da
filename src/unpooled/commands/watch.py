"""`unpooled watch RUN|LINK`: a page on this machine that follows a run, or the nodes and runs of a link, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled watch`."""
    parser = commands.add_parser("watch", help="follow a run or a link in a browser", description=__doc__)
    parser.add_argument("place", metavar="RUN|LINK", help="a run folder, or the HOST:PORT or folder of a link")
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="FOLDER",
        help="the folder that holds a link's run folders (default: runs, or the working folder if there is none)",
    )
    add_page_options(parser)
    return parser


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Arguments that all live pages share."""
    parser.add_argument(
        "--port", type=int, default=0, help="where the page listens on 127.0.0.1 (default: any free port)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--json", action="store_true", help="print the address as JSON")


def run(args: argparse.Namespace) -> int:
    """Serve the page of a run, or of a link, until Ctrl-C."""
    from unpooled.pages import watch
    from unpooled.pages.server import Server

    folder = Path(args.place)
    if (folder / "config.toml").is_file():
        server = Server(watch.RunPage(folder), watch.routes(lambda request: folder), args.port)
    else:
        from unpooled.remote.link import find

        runs = args.runs or (Path("runs") if Path("runs").is_dir() else Path())
        server = Server(watch.LinkPage(find(args.place), runs), watch.link_routes(runs), args.port)
    return serve(server, args)


def serve(server: Any, args: argparse.Namespace) -> int:
    """Print the address of a page and serve it until Ctrl-C."""
    from unpooled.pages.server import announce

    def say(address: str) -> None:
        """Print the address with its token."""
        text = f"open {address}\nonly this machine can, and only with this address; stop: Ctrl-C"
        print(json.dumps({"address": address}) if args.json else text, flush=True)

    announce(server, say, args.open)
    server.run()
    return 0
