"""`unpooled verify RUN --ledger LEDGER ...`: check that totals are those in the nodes' ledgers and that the study gives
this model.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from unpooled.commands import add_run


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Arguments of `unpooled verify`."""
    parser = commands.add_parser(
        "verify", help="check a run of a study against the nodes' ledgers", description=__doc__
    )
    parser.add_argument(
        "--ledger", type=Path, action="append", default=[], help="a node's ledger.jsonl; once for each node"
    )
    add_run(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Check the run's certificate against the ledgers; 1 when one thing failed."""
    from unpooled.certificate import verify

    findings = verify(args.folder, args.ledger)
    wrong = [f for f in findings if f.wrong]
    if args.json:
        print(json.dumps({"certified": not wrong, "findings": [f._asdict() for f in findings]}))
        return 1 if wrong else 0
    for finding in wrong or findings[:1]:
        print(finding)
    if wrong:
        print(f"NOT certified: {len(wrong)} of {len(findings)} checks failed")
        return 1
    ledgers = f"{len(args.ledger)} ledger{'s' if len(args.ledger) != 1 else ''}"
    print(f"certified: all {len(findings)} checks passed, with {ledgers}")
    return 0
