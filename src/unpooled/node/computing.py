"""A question put to a node's rows: the answer before noise and masks, chunk by chunk where the question adds over rows. Nothing is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import Ask, Client
from unpooled.jobs import merged_jobs
from unpooled.node.questions import Refused
from unpooled.node.rows import Rows
from unpooled.tree import Tree

NOBODY = Client("", np.zeros((0, 1)))  # a client without rows, to be given a state and secrets
_CONTEXT = ("moment", "letters", "asked", "secrets", "draws")  # fields of `Client` that do not come from its rows


class Answered(NamedTuple):
    """A question answered from a node's rows, before noise and masks."""

    ask: Ask
    down: Tree
    up: Tree
    client: Client  # with its state after the answer
    n_rows: int


def check_down(down: Tree, ask: Ask) -> dict[str, Any]:
    """The sizes that the letters of the schema have in `down`, if it fits."""
    bound = tree.dims(down, ask.types[0])
    for path, leaf in tree.iter_paths(down):
        a = to_numpy(leaf)
        if a.dtype.kind == "f" and np.isnan(a).any():
            raise Refused(f"what came down holds NaN in {path}: the coordinator's model has broken")
    return bound


def ask_rows(ask: Ask, down: Tree, rows: Rows, like: Client, least: int) -> Answered:
    """The answer of these rows, chunk by chunk where the question adds over rows.

    `like` gives the state, secrets and letters that the client is asked with; a view may leave out `least` rows or more, or none.
    """
    bare = replace(ask, steps=())
    if not ask.adds and not rows.whole:
        raise Refused(
            f"{ask.name} needs all rows at once, and the table is read in chunks: raise chunk_rows at the node"
        )
    up: Tree = None
    for part in rows.parts():
        me = replace(part, state=dict(like.state), **{name: getattr(like, name) for name in _CONTEXT})
        me = ask.seen(me)
        if 0 < len(part.w) - len(me.w) < least:
            raise Refused(
                f"{ask.name} would leave out fewer rows than the {least} that the policy demands: use fewer folds"
            )
        # cut as Local cuts, so that a sum has the same bits here as there
        for piece in (job.target for job in merged_jobs([me])) if ask.adds else [me]:
            answer = bare(down, piece)
            up = answer if up is None else tree.add(up, answer)
    return Answered(ask, down, up, me, rows.n_rows)
