"""Which nodes the totals of a study were of, in all its runs: each sum of it is made of the same nodes. Nothing is sent.

Masks hide a node's answer in a total. A coordinator that runs a study twice, the second time without one node, would have two totals
of the same question, and their difference is what that node sent. Sets that differ by many nodes do not help: the total of seven nodes
less those of three and of three others is the seventh's answer. So a node gives its shares of a mask only if the nodes that answered are
the same as in every earlier run of the study, for the same round of the study and for the same number of the sum: the round is this
node's own count, whatever number the coordinator gives the sum. The same holds for a question that two studies of the same participants
have in common, as most have their first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from unpooled.node.questions import Refused
from unpooled.node.vault import Vault
from unpooled.study import Study

SHOWN = 5  # names in a refusal, at most
QUESTIONS = "cohorts-questions"  # in the vault: 32 bytes of a question and 32 of the nodes in its total, for each


class Addition(NamedTuple):
    """A masked sum that is to be added up, and over which nodes."""

    study: Study
    t: int  # the number of the sum within a run, as the coordinator counts
    round: int  # of the study, as this node counts; the same round is the same question in every run
    mark: bytes  # 32 bytes that are the same for the same question about the same columns, in any study of the same participants
    answered: Sequence[str]  # the nodes whose answers would be added up

    @property
    def key(self) -> str:
        """Where the vault keeps the nodes of this study's sums."""
        return f"cohorts-{self.study.digest[:40]}"

    @property
    def places(self) -> tuple[str, str]:
        """The sum by the coordinator's number, and by this node's."""
        return str(self.t), f"round {self.round}"

    @property
    def among(self) -> bytes:
        """A hash of the nodes."""
        return hashlib.sha256(json.dumps(sorted(self.answered)).encode()).digest()


def check_total(vault: Vault, sum: Addition) -> None:
    """Refuse a sum that was added up over other nodes before, in a run of this study or of another one with the same question.

    Parameters
    ----------
    vault : Vault
        Where the nodes of earlier runs are kept, by study, and those of each question, whatever study asked it.
    sum : Addition
        What the coordinator wants to add up.
    """
    known = _known(vault, sum)
    apart = sorted({name for place in sum.places for name in set(known.get(place, sum.answered)) ^ set(sum.answered)})
    if apart:
        raise Refused(
            f"SUM {sum.t} of this study was added up in an earlier run over other nodes: it differs by {', '.join(apart[:SHOWN])}, and "
            "totals of several sets of nodes show single answers; ask the same nodes, resume that run, or have a new study approved"
        )
    if _questions(vault).get(sum.mark, sum.among) != sum.among:
        raise Refused(
            f"SUM {sum.t} asks what another study of the same participants asked, and that was added up over other nodes: the two totals "
            "would show single answers; ask the same nodes, or have a study without the missing ones approved"
        )


def note_total(vault: Vault, sum: Addition) -> None:
    """Note over which nodes a sum is added up: when shares are given, before they leave, and not when they are refused."""
    if sum.mark not in _questions(vault):
        vault[QUESTIONS] = vault.get(QUESTIONS, b"") + sum.mark + sum.among
    vault[sum.key] = json.dumps({**_known(vault, sum), **dict.fromkeys(sum.places, sorted(sum.answered))}).encode()


def _known(vault: Vault, sum: Addition) -> dict[str, list[str]]:
    """The nodes of each sum of this study that was added up."""
    return json.loads(vault.get(sum.key, b"{}"))


def _questions(vault: Vault) -> dict[bytes, bytes]:
    """A hash of the nodes in the total of each question that was ever added up."""
    shown = vault.get(QUESTIONS, b"")
    return {shown[i : i + 32]: shown[i + 32 : i + 64] for i in range(0, len(shown), 64)}
