"""Which nodes the totals of a study were of, in all its runs: each sum of it is made of the same nodes. Nothing is sent.

Masks hide a node's answer in a total. A coordinator that runs a study twice, the second time without one node, would have two totals
of the same question, and their difference is what that node sent. Sets that differ by many nodes do not help: the total of seven nodes
less those of three and of three others is the seventh's answer. So a node gives its shares of a mask only if the nodes that answered are
the same as in every earlier run of the study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from unpooled.node.questions import Refused
from unpooled.node.vault import Vault
from unpooled.study import Study

SHOWN = 5  # names in a refusal, at most


def admit_total(vault: Vault, study: Study, t: int, answered: Sequence[str]) -> None:
    """Note that sum `t` of a study is added up over these nodes; Refused if it was added up over others before.

    Parameters
    ----------
    vault : Vault
        Where the nodes of earlier runs are kept, by study and number of the sum.
    study : Study
        What is run.
    t : int
        The number of the sum within a run; the same number is the same question in every run.
    answered : sequence of str
        The nodes whose answers would be added up.
    """
    key = f"cohorts-{study.digest[:40]}"
    known: dict[str, list[str]] = json.loads(vault.get(key, b"{}"))
    before = known.get(str(t))
    if before is None:
        vault[key] = json.dumps({**known, str(t): sorted(answered)}).encode()
        return
    apart = sorted(set(before) ^ set(answered))
    if apart:
        raise Refused(
            f"SUM {t} of this study was added up in an earlier run over other nodes: it differs by {', '.join(apart[:SHOWN])}, and "
            "totals of several sets of nodes show single answers; ask the same nodes, resume that run, or have a new study approved"
        )
