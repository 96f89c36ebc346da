"""`unpooled node review|approve|revoke|fingerprint`: a site decides which studies its node takes part in."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

STUDIES = re.compile(r"^studies\s*=\s*\[[^\]]*\]", re.M)


def add_parsers(inner: Any) -> None:
    """The four commands, as parts of `unpooled node`."""
    texts = {
        "review": "what a study would do here: in words, with a rehearsal on this node's table",
        "approve": "let this node take part in a study",
        "revoke": "withdraw the approval of a study",
    }
    for name, text in texts.items():
        parser = inner.add_parser(name, help=text, description=text)
        parser.add_argument(
            "study", help="the study's file" + (", or the beginning of its SHA-256" if name == "revoke" else "")
        )
        _add_node(parser)
    _add_node(inner.add_parser("fingerprint", help="this node's fingerprint, for the [participants] of a study"))


def _add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node", type=Path, default=Path("node.toml"), metavar="node.toml", help="default: node.toml here"
    )
    parser.add_argument("--json", action="store_true")


def run_review(args: argparse.Namespace) -> int:
    from unpooled import study
    from unpooled.node import config, policy, review

    node = config.read(args.node)
    rules = policy.read(node.paths["policy"])
    found = review.review(study.read(Path(args.study)), node.name, config.table_source(node), rules)
    if args.json:
        print(json.dumps({"study": found.study.digest, "warnings": found.warnings, "failure": found.failure}))
    else:
        _print_lines(review.explain(found))
        print(f"\nto take part: unpooled node approve {args.study} --node {args.node}")
    return 1 if found.failure else 0


def _print_lines(lines: list[str]) -> None:
    """Warnings in red where the terminal has colours."""
    red, end = ("\x1b[31m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    for line in lines:
        marked = line.startswith("!") or "SEEN BY THE COORDINATOR" in line
        print(f"{red}{line}{end}" if marked else line)


def run_approve(args: argparse.Namespace) -> int:
    from unpooled import store, study
    from unpooled.node import config, policy

    node = config.read(args.node)
    approved = study.read(Path(args.study))
    rules = policy.read(node.paths["policy"])
    _write_studies(node.paths["policy"], sorted({*rules.studies, approved.digest}))
    store.write_file(node.folder / "studies" / f"{approved.digest[:16]}.toml", approved.content)
    told = f"{node.name} takes part in {approved.title!r} ({approved.digest[:16]}) from the next question on"
    print(json.dumps({"approved": approved.digest}) if args.json else told)
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    from unpooled import study
    from unpooled.errors import BadParameter
    from unpooled.node import config, policy

    node = config.read(args.node)
    rules = policy.read(node.paths["policy"])
    path = Path(args.study)
    start = study.read(path).digest if path.is_file() else args.study
    gone = [digest for digest in rules.studies if digest.startswith(start)]
    if not gone:
        raise BadParameter(
            f"{node.name} has approved no study {args.study!r}: its policy.toml lists {len(rules.studies)}"
        )
    _write_studies(node.paths["policy"], [digest for digest in rules.studies if digest not in gone])
    print(
        json.dumps({"revoked": gone})
        if args.json
        else f"{node.name} no longer answers {', '.join(d[:16] for d in gone)}"
    )
    return 0


def run_fingerprint(args: argparse.Namespace) -> int:
    from unpooled.errors import BadParameter
    from unpooled.node import config
    from unpooled.node.secrets import read_identity
    from unpooled.secure import fingerprint, identity_bytes

    node = config.read(args.node)
    if node.key is None:
        raise BadParameter("node.toml names no key: `unpooled node init` makes one")
    mark = fingerprint(identity_bytes(read_identity(node.key)))
    print(json.dumps({"name": node.name, "fingerprint": mark}) if args.json else f'{node.name} = "{mark}"')
    return 0


def _write_studies(path: Path, digests: list[str]) -> None:
    """Change the line `studies = [...]` of a policy file and nothing else."""
    from unpooled import store

    text = path.read_text()
    line = f"studies = {json.dumps(digests)}"
    new, count = STUDIES.subn(lambda _: line, text, count=1)
    store.write_file(path, (new if count else f"{line}\n{text}").encode())


RUNS = {"review": run_review, "approve": run_approve, "revoke": run_revoke, "fingerprint": run_fingerprint}
