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

from unpooled.node.questions import Refused
from unpooled.node.vault import Vault
from unpooled.study import Study

SHOWN = 5  # names in a refusal, at most
QUESTIONS = "cohorts-questions"  # in the vault: 32 bytes of a question and 32 of the nodes in its total, for each


def admit_total(vault: Vault, study: Study, t: int, round: int, mark: bytes, answered: Sequence[str]) -> None:
    """Note that a round of a study is added up over these nodes; Refused if it was added up over others before.

    Parameters
    ----------
    vault : Vault
        Where the nodes of earlier runs are kept, by study, and those of each question, whatever study asked it.
    study : Study
        What is run.
    t : int
        The number of the sum within a run, as the coordinator counts.
    round : int
        The round of the study that the sum belongs to, as this node counts; the same round is the same question in every run.
    mark : bytes
        32 bytes that are the same for the same question about the same columns, in any study of the same participants.
    answered : sequence of str
        The nodes whose answers would be added up.
    """
    key = f"cohorts-{study.digest[:40]}"
    known: dict[str, list[str]] = json.loads(vault.get(key, b"{}"))
    places = (str(t), f"round {round}")
    apart = sorted({name for place in places for name in set(known.get(place, answered)) ^ set(answered)})
    if apart:
        raise Refused(
            f"SUM {t} of this study was added up in an earlier run over other nodes: it differs by {', '.join(apart[:SHOWN])}, and "
            "totals of several sets of nodes show single answers; ask the same nodes, resume that run, or have a new study approved"
        )
    _admit_question(vault, t, mark, answered)
    vault[key] = json.dumps({**known, **dict.fromkeys(places, sorted(answered))}).encode()


def _admit_question(vault: Vault, t: int, mark: bytes, answered: Sequence[str]) -> None:
    """Note the nodes in the total of a question; Refused if another study of the same participants had others in it."""
    shown = vault.get(QUESTIONS, b"")
    among = hashlib.sha256(json.dumps(sorted(answered)).encode()).digest()
    records = {shown[i : i + 32]: shown[i + 32 : i + 64] for i in range(0, len(shown), 64)}
    before = records.get(mark)
    if before is None:
        vault[QUESTIONS] = shown + mark + among
    elif before != among:
        raise Refused(
            f"SUM {t} asks what another study of the same participants asked, and that was added up over other nodes: the two totals "
            "would show single answers; ask the same nodes, or have a study without the missing ones approved"
        )
