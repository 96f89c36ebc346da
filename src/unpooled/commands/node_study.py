"""`unpooled node review|approve|refuse|revoke|fingerprint`: a site decides which studies its node takes part in."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from unpooled.commands import add_json, show


def add_parsers(inner: Any) -> None:
    """The five commands, as parts of `unpooled node`."""
    texts = {
        "review": "describe what a study would ask of this node, after a rehearsal on its table",
        "approve": "let this node take part in a study",
        "refuse": "note that this node does not take part in a study",
        "revoke": "withdraw the approval of a study",
    }
    for name, text in texts.items():
        parser = inner.add_parser(name, help=text, description=text)
        parser.add_argument(
            "study", help="the study's file" + (", or the beginning of its SHA-256" if name == "revoke" else "")
        )
        add_node(parser)
        add_json(parser)
    mark = inner.add_parser("fingerprint", help="this node's fingerprint, for the [participants] of a study")
    add_node(mark)
    add_json(mark)


def add_node(parser: argparse.ArgumentParser) -> None:
    """The option --node, which all commands about a site's node share."""
    parser.add_argument(
        "--node", type=Path, default=Path("node.toml"), metavar="node.toml", help="default: node.toml here"
    )


def run_review(args: argparse.Namespace) -> int:
    """Rehearse a study on the node's table and print what would leave; 1 when the node cannot answer it."""
    from unpooled import study
    from unpooled.node import approval, config, policy, review

    node = config.read(args.node)
    rules = policy.read(node.paths["policy"])
    found = review.review(
        study.read(Path(args.study)), node.name, config.table_source(node), rules, approval.others(node)
    )
    if args.json:
        print(json.dumps({"study": found.study.digest, "warnings": found.warnings, "failure": found.failure}))
    else:
        _print_lines(review.explain(found))
        print(f"\n{_next_step(found, args)}")
    return 1 if found.failure and not found.alone else 0


def _next_step(found: Any, args: argparse.Namespace) -> str:
    if found.failure and not found.alone:
        return "the node cannot answer this study yet: mend its table or node.toml, or ask the coordinator for another study"
    return f"to take part: unpooled node approve {args.study} --node {args.node}"


def _print_lines(lines: list[str]) -> None:
    """Warnings in red where the terminal has colours."""
    red, end = ("\x1b[31m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    for line in lines:
        marked = line.startswith("!") or "SEEN BY THE COORDINATOR" in line
        print(f"{red}{line}{end}" if marked else line)


def run_approve(args: argparse.Namespace) -> int:
    """Approve a study: the node answers it from the next question on."""
    name, study = _decided(args, "approve")
    text = f"{name} takes part in {study.title!r} ({study.digest[:16]}) from the next question on"
    return show(args, {"approved": study.digest}, text)


def run_refuse(args: argparse.Namespace) -> int:
    """Note that the site does not take part."""
    name, study = _decided(args, "refuse")
    text = f"{name} does not take part in {study.title!r} ({study.digest[:16]})"
    return show(args, {"refused": study.digest}, text)


def _decided(args: argparse.Namespace, decision: str) -> tuple[str, Any]:
    """(name of the node, study) after a decision on the study, "approve" or "refuse", was noted."""
    from unpooled import study
    from unpooled.node import approval, config

    node = config.read(args.node)
    wanted = study.read(Path(args.study))
    getattr(approval, decision)(node, wanted)
    return node.name, wanted


def run_revoke(args: argparse.Namespace) -> int:
    """End an approval, by the study's file or by its digest."""
    from unpooled import study
    from unpooled.node import approval, config

    node = config.read(args.node)
    path = Path(args.study)
    ended = approval.revoke(node, study.read(path).digest if path.is_file() else args.study)
    return show(args, {"revoked": ended}, f"{node.name} no longer answers {', '.join(d[:16] for d in ended)}")


def run_fingerprint(args: argparse.Namespace) -> int:
    """Print the node's name and the fingerprint of its key, as a study lists them."""
    from unpooled.errors import BadParameter
    from unpooled.node import config
    from unpooled.node.secrets import read_identity
    from unpooled.secure import fingerprint, identity_bytes

    node = config.read(args.node)
    if node.key is None:
        raise BadParameter("node.toml names no key: `unpooled node init` makes one")
    mark = fingerprint(identity_bytes(read_identity(node.key)))
    return show(args, {"name": node.name, "fingerprint": mark}, f'{node.name} = "{mark}"')


RUNS = {
    "review": run_review,
    "approve": run_approve,
    "refuse": run_refuse,
    "revoke": run_revoke,
    "fingerprint": run_fingerprint,
}
