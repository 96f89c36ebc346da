"""Lines of the ledger: what is written down of an answer, of a refusal and of a check. Nothing is sent."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from unpooled import tree, wire
from unpooled.arrays import to_numpy
from unpooled.client import Ask
from unpooled.node.ledger import Line
from unpooled.node.policy import MASK
from unpooled.tree import Tree


def answer_line(request: dict[str, Any], sent: Tree, ask: Ask, dry: bool) -> Line:
    """What is written down of an answer."""
    leaves, content = list(tree.iter_paths(sent)), wire.pack({}, sent)
    return Line(
        run=request["run"],
        round=request["round"],
        question=ask.name,
        kind=ask.kind,
        steps=[s.name for s in ask.steps],
        what=[[path or "value", list(np.shape(leaf)), str(to_numpy(leaf).dtype)] for path, leaf in leaves],
        numbers=sum(int(np.size(to_numpy(leaf))) for _, leaf in leaves),
        bytes=len(content),
        digest=hashlib.sha256(content).hexdigest(),
        dry=dry,
        study=str(request.get("study") or "")[:64],
        masked=any(step.name == MASK for step in ask.steps),
    )


def refusal_line(request: dict[str, Any], reason: str) -> Line:
    """What is written down of a question that was not answered."""
    study = str(request.get("study") or "")[:64]
    return Line(
        request["run"], request["round"], request["ask"][:80], "refused", [], [], 0, 0, reason[:200], study=study
    )


def profile_line(content: dict[str, Any]) -> Line:
    """What is written down of a check of the table."""
    body = json.dumps(content).encode()
    return Line("check", 0, "tables.profile", "profile", [], [], 0, len(body), hashlib.sha256(body).hexdigest())
