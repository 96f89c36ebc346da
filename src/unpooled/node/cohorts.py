"""Which nodes the totals of a study were of, in all its runs: no two totals of it may differ by few nodes. Nothing is sent.

Masks hide a node's answer in a total. A coordinator that runs a study twice, the second time without one node, would have two totals
of the same question, and their difference is what that node sent. So a node gives its shares of a mask only if the nodes that answered
are the same as in every earlier run, or others in so large a number that their difference is a sum itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from unpooled.node.questions import Refused
from unpooled.node.vault import Vault
from unpooled.study import Study

SHOWN = 5  # names in a refusal, at most


def admit_total(vault: Vault, study: Study, t: int, answered: Sequence[str], least: int) -> None:
    """Note that sum `t` of a study is added up over these nodes; Refused if that tells of few nodes beside an earlier total.

    Parameters
    ----------
    vault : Vault
        Where earlier sets of nodes are kept, by study and number of the sum.
    study : Study
        What is run.
    t : int
        The number of the sum within a run; the same number is the same question in every run.
    answered : sequence of str
        The nodes whose answers would be added up.
    least : int
        The fewest nodes that a difference of two totals may be of.
    """
    key = f"cohorts-{study.digest[:40]}"
    known: dict[str, list[list[str]]] = json.loads(vault.get(key, b"{}"))
    before = known.setdefault(str(t), [])
    for names in before:
        apart = sorted(set(names) ^ set(answered))
        if 0 < len(apart) < least:
            raise Refused(
                f"SUM {t} of this study was added up in an earlier run over a set of nodes that differs by {', '.join(apart[:SHOWN])}: "
                "both totals together would show their answers; ask the same nodes, resume the earlier run, or have a new study approved"
            )
    if sorted(answered) not in before:
        before.append(sorted(answered))
        vault[key] = json.dumps(known).encode()
