"""`unpooled node`: a participant's side of a network. Its data stays here, its policy decides what is answered, and its
ledger records what leaves.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from unpooled.commands import add_json, node_page, node_study, show


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled node` and of its own commands."""
    parser = commands.add_parser("node", help="take part with data of your own", description=__doc__)
    inner = parser.add_subparsers(required=True, metavar="WHAT", dest="what")
    init = inner.add_parser("init", help="write node.toml, policy.toml and a key into a folder")
    init.add_argument("folder", type=Path, metavar="FOLDER", help="the folder to make")
    init.add_argument("--name", help="the node's name in the federation (default: the folder's name)")
    init.add_argument("--data", default="data.csv", help="the table: a file, or the url of a database")
    init.add_argument("--on", default="127.0.0.1:9092", metavar="HOST:PORT", help="the coordinator's link")
    add_json(init)
    keygen = inner.add_parser("keygen", help="make a key pair")
    keygen.add_argument("path", type=Path, help="the private key's file; .pub goes beside it")
    keygen.add_argument("--name", default="", help="the node's name, kept in the public key as its comment")
    add_json(keygen)
    start = inner.add_parser("start", help="connect, and answer until Ctrl-C")
    start.add_argument("file", type=Path, metavar="node.toml", help="the settings of the node")
    start.add_argument("--insecure", action="store_true", help="no TLS and no key; on loopback only")
    start.add_argument("--behind", metavar="HOST:PORT", help="serve a stock SuperNode started with --isolation process")
    _add_ledger(inner.add_parser("ledger", help="check or show the ledger of what left"))
    node_study.add_parsers(inner)
    node_page.add_parser(inner)
    return parser


def _add_ledger(parser: argparse.ArgumentParser) -> None:
    """Arguments of `unpooled node ledger`."""
    parser.add_argument("action", choices=("verify", "show"))
    parser.add_argument("file", type=Path, metavar="ledger.jsonl", help="the ledger in the folder of the node")
    parser.add_argument("--head", help="the hash of the last line, as noted before")
    parser.add_argument("--last", type=int, default=0, help="show so many lines only, from the end")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command that was given behind `node`."""
    own = {"init": run_init, "keygen": run_keygen, "start": run_start, "ledger": run_ledger, "page": node_page.run}
    return {**own, **node_study.RUNS}[args.what](args)


def run_init(args: argparse.Namespace) -> int:
    """Write node.toml, policy.toml and a key pair; a folder that has a node.toml is refused."""
    from unpooled.errors import BadParameter
    from unpooled.node import config, policy
    from unpooled.remote.keys import make_node_key

    folder = args.folder
    if (folder / "node.toml").exists():
        raise BadParameter(f"{folder / 'node.toml'} is there already: edit it, or choose another folder")
    name = args.name or folder.resolve().name
    key = make_node_key(folder / "node.key", name)
    values = {"name": name, "link": args.on, "path": args.data}
    text = config.TEMPLATE.format(**{k: json.dumps(v) for k, v in values.items()})
    if "://" in args.data:
        text = text.replace("path = ", "url = ", 1).replace(
            "csv, csv.gz, parquet or npz; or: ", "with table = or query =; "
        )
    (folder / "node.toml").write_text(text)
    (folder / "policy.toml").write_text(policy.TEMPLATE)
    text = f"wrote {folder}/node.toml and policy.toml: look through both\nsend {key} to the coordinator, ask for its ca.crt"
    return show(args, {"node": str(folder / "node.toml"), "key": str(key)}, text)


def run_keygen(args: argparse.Namespace) -> int:
    """Make a key pair and say what to do with each half."""
    from unpooled.remote.keys import make_node_key

    key = make_node_key(args.path, args.name)
    return show(args, {"key": str(key)}, f"send {key} to the coordinator; keep {args.path} to yourself")


def run_start(args: argparse.Namespace) -> int:
    """Answer questions until Ctrl-C or SIGTERM, with a log on standard error."""
    from unpooled.node import config as configs

    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("unpooled.node").setLevel(logging.INFO)
    config = configs.read(args.file)
    stop = threading.Event()
    site = configs.site(config)
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: stop.set())
    if args.behind:
        from unpooled.remote.engines import engine

        engine().run_worker(site, args.behind, stop)
    else:
        _connect(site, config, args.insecure, stop)
    return 0


def _connect(site: Any, config: Any, insecure: bool, stop: threading.Event) -> None:
    """Connect over TLS with the node's key, or plainly on loopback."""
    from unpooled.errors import BadParameter, DataNotFound
    from unpooled.remote.engines import engine
    from unpooled.remote.link import Link

    if insecure:
        engine().run_node(site, Link(config.link), None, stop)
        return
    if config.ca is None or config.key is None:
        raise BadParameter("node.toml needs ca = and key =: `unpooled node init` writes them")
    if not config.ca.is_file():
        raise DataNotFound(f"{config.ca} is not there: ask the coordinator for the ca.crt of its link")
    engine().run_node(site, Link(config.link, config.ca.read_bytes()), config.key, stop)


def run_ledger(args: argparse.Namespace) -> int:
    """Verify a ledger's chain of hashes, or show its lines in words."""
    from unpooled.node import ledger

    count, head = ledger.verify(args.file, args.head)
    if args.action == "verify":
        text = f"{count} lines, none changed; note the last hash elsewhere: {head}"
        return show(args, {"lines": count, "head": head}, text)
    for entry in list(ledger.entries(args.file))[-args.last :]:
        print(json.dumps(entry) if args.json else ledger.explain(entry))
    if not args.json and (cost := ledger.budget_line(args.file)):
        print(cost)
    return 0
