"""Bounds on the options of a question: on those that decide how few rows a number in the answer can describe.

A request cannot widen them. They hold for studies and for coordinators that are trusted alike, with one difference: a
coordinator that chooses its questions may ask about few whole models at once (`candidates`). In a study that the node
follows, the approved study chooses them, and they are bounded as components are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unpooled.node.questions import Refused
from unpooled.study import Study
from unpooled.tree import Tree

if TYPE_CHECKING:
    from unpooled.node.policy import Policy

DEFAULTS = {  # the key in [limits] of policy.toml -> its value
    "min_count": 5.0,  # rows in a cluster whose centre leaves, at least
    "batch": 32.0,  # rows in one step of training, at least
    "components": 256.0,  # clusters, centres or models in one question, at most
    "candidates": 16.0,  # whole models in one question that the coordinator chose, at most
    "share": 0.5,  # part of the rows that may be held out or hidden, at most
    "steps": 1000.0,  # epochs or steps of training in one question, at most
}
AT_LEAST = {"min_count": "min_count", "batch": "batch", "batch_size": "batch"}  # option -> limit
AT_MOST = {
    **dict.fromkeys(("k", "default", "max_local", "max_centres", "inducing", "models", "size"), "components"),
    **dict.fromkeys(("share", "hide"), "share"),
    **dict.fromkeys(("epochs", "local_epochs", "steps", "inner_steps", "local_steps"), "steps"),
}


def check(
    name: str, options: Mapping[str, Any], down: Tree, limits: Mapping[str, float], node: str, followed: bool = False
) -> None:
    """Refuse a request whose options are out of the bounds of this node.

    Parameters
    ----------
    name : str
        The question.
    options : mapping
        Its options, some of which are bounded.
    down : Tree
        What came down with it: the number of models in it is bounded.
    limits : mapping of str to float
        The [limits] of the policy.
    node : str
        The node's name, for the sentence.
    followed : bool, default=False
        Whether it is what an approved study asks next.
    """
    for option, value in _numbers(options):
        low = limits.get(AT_LEAST.get(option, ""))
        high = limits.get(AT_MOST.get(option, ""))
        if (low is not None and value < low) or (high is not None and value > high):
            bound = f"at least {low:g}" if high is None else f"at most {high:g}"
            raise Refused(
                f"{name} was asked with {option} = {value:g}, and {node!r} allows {bound}: see [limits] in its policy"
            )
    bound = "components" if followed else "candidates"
    several = isinstance(down, tuple | list) and not hasattr(down, "_fields")
    if several and len(down) > limits.get(bound, len(down)):
        raise Refused(
            f"{name} was asked about {len(down)} models at once, and {node!r} allows {limits[bound]:g}: "
            f"see {bound} under [limits] in its policy"
        )


def admit_study(study: Study, policy: Policy, node: str) -> None:
    """Refuse a study that would let its numbers stand for fewer rows than this node's policy demands."""
    least = policy.min_rows_per_component
    if study.min_rows_per_component < least and not study.privacy:
        raise Refused(
            f"the study lets a number stand for {study.min_rows_per_component} rows at all sites together, and {node!r} demands "
            f"{least:g}: write min_rows_per_component = {least:g} under [study]"
        )
    check(study.config["model"]["name"], study.estimator().get_params(), None, policy.limits, node)


def _as_float(value: float) -> float:
    """The number as a float; one that is too large for it is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _numbers(options: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """(option, number) pairs, those inside nested options too."""
    for option, value in options.items():
        if isinstance(value, Mapping):
            yield from _numbers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield option, _as_float(value)
