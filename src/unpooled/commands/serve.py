"""`unpooled serve`: the coordinator's side of a network. Starts the server that nodes connect to, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path
from typing import Any

from unpooled.commands import show
from unpooled.remote.link import FOLDER


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled serve`, `serve admit` and `serve renew`."""
    parser = commands.add_parser("serve", help="start the link that nodes connect to", description=__doc__)
    add_link(parser)
    parser.add_argument("--address", default="127.0.0.1:9092", metavar="HOST:PORT", help="where to listen")
    parser.add_argument("--host", action="append", default=[], help="another name that nodes reach this machine by")
    parser.add_argument("--insecure", action="store_true", help="no TLS and no node keys; on loopback only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    inner = parser.add_subparsers(metavar="COMMAND", title="other commands")
    admit = inner.add_parser("admit", help="admit a node's key")
    admit.add_argument("key", type=Path, metavar="KEY.pub", help="the public key that the node's owner sent")
    admit.add_argument("--name", help="the node's name (default: the name in the key, or the file's name)")
    add_link(admit, default=argparse.SUPPRESS)
    admit.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
    admit.set_defaults(run=run_admit)
    renew = inner.add_parser("renew", help="renew the server's certificate; nodes keep their ca.crt")
    add_link(renew, default=argparse.SUPPRESS)
    renew.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
    renew.set_defaults(renew=True)
    return parser


def add_link(parser: argparse.ArgumentParser, default: Any = FOLDER) -> None:
    """The argument --link that several commands share."""
    text = f"the link's folder (default: {FOLDER})"
    parser.add_argument("--link", type=Path, default=default, metavar="FOLDER", help=text)


def run(args: argparse.Namespace) -> int:
    """Start the link's server and keep it running until Ctrl-C or SIGTERM."""
    if getattr(args, "key", None) is not None:  # the caller sets `run` of the outer parser last
        return run_admit(args)
    if getattr(args, "renew", False):
        return run_renew(args)
    from unpooled.remote.engines import engine

    stop = threading.Event()
    folder = args.link.expanduser()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: stop.set())

    def started(link: Any) -> None:
        """Say where the link listens and what the sites need next."""
        server = {"address": link.listen, "link": str(folder), "ca": None if args.insecure else str(folder / "ca.crt")}
        print(json.dumps(server) if args.json else _next_steps(server), flush=True)

    engine().serve(folder, args.address, stop, started, hosts=args.host, insecure=args.insecure)
    return 0


def _next_steps(server: dict[str, Any]) -> str:
    """The commands to type next."""
    usual = Path(server["link"]) == FOLDER.expanduser()
    link, on = ("", server["address"]) if usual else (f" --link {server['link']}", server["link"])
    trust = (
        f"\nsend {server['ca']} to the nodes; admit theirs: unpooled serve admit KEY.pub{link}" if server["ca"] else ""
    )
    return f"serving nodes at {server['address']}{trust}\nfit: unpooled run FILE.toml --on {on}    stop: Ctrl-C"


def run_admit(args: argparse.Namespace) -> int:
    """Admit a node's public key under its name."""
    from unpooled.remote.engines import engine

    name = engine().admit(args.link.expanduser(), args.key, args.name)
    return show(args, {"admitted": name}, f"admitted {name}")


def run_renew(args: argparse.Namespace) -> int:
    """Renew the server's certificate with the link's own CA."""
    from unpooled.remote.keys import renew

    end = renew(args.link.expanduser())
    return show(args, {"expires": end.isoformat()}, f"renewed; expires {end:%Y-%m-%d}")
