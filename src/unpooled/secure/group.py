"""The nodes of a run as both sides see them: names, keys, neighbours, holders, what each signs, and whether they are enough."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from unpooled.errors import MaskingRefused, TooFewClients
from unpooled.secure import graph
from unpooled.secure.keys import KEY_BYTES, digest
from unpooled.secure.messages import Keys, MaskRequest, to_bytes


class PublicKeys:
    """A node's keys as bytes, read from its message."""

    def __init__(self, name: str, keys: Keys) -> None:
        """Check the lengths of one node's keys."""
        if not isinstance(keys, Keys):
            raise MaskingRefused(f"the roster holds no keys for {name}: the message is damaged")
        self.exchange = to_bytes(keys.exchange, f"the X25519 key of {name}", KEY_BYTES)
        self.verify = to_bytes(keys.verify, f"the Ed25519 key of {name}", KEY_BYTES)
        self.identity = to_bytes(keys.identity, f"the node key of {name}")
        self.signature = to_bytes(keys.signature, f"the signature of {name}")


class Group:
    """Everything public that follows from a roster; the same at every node and at the coordinator."""

    def __init__(self, run: str, roster: Mapping[str, Keys]) -> None:
        """Names, keys and neighbours that both sides derive from the same roster."""
        if not (isinstance(roster, Mapping) and all(isinstance(name, str) for name in roster)):
            raise MaskingRefused("the roster should give keys by name: the message is damaged")
        self.run = run
        self.names = sorted(roster)
        self.keys = {name: PublicKeys(name, roster[name]) for name in self.names}
        entries = [[n, k.exchange, k.verify, k.identity] for n, k in self.keys.items()]
        self.digest = digest("roster", run, entries)
        self.neighbours = graph.neighbours(self.names, self.digest)
        self.point = {name: i + 1 for i, name in enumerate(self.names)}

    def holders(self, name: str) -> list[str]:
        """Who holds shares of a node's secrets: its neighbours and itself, sorted."""
        return sorted([*self.neighbours[name], name])

    def threshold(self, name: str) -> int:
        """How many holders' shares recover a node's secret."""
        return graph.threshold(len(self.neighbours[name]) + 1)

    def holders_in(self, name: str, cohort: Collection[str]) -> list[str]:
        """The holders of a node that are in a cohort."""
        return [holder for holder in self.holders(name) if holder in cohort]

    def has_enough_holders(self, name: str, cohort: Collection[str]) -> bool:
        """Whether enough holders of a node are in a cohort to recover its secrets."""
        return len(self.holders_in(name, cohort)) >= self.threshold(name)

    def least_total(self, name: str, cohort: Collection[str], answered: Collection[str]) -> int:
        """The fewest nodes that a total can have, if all nodes accept as many losses as this one is told of.

        A dishonest coordinator may tell each node of other losses. To leave a node out it needs shares from `threshold`
        holders that were told so. If each node is told of `lost` losses, it can leave out cohort * lost / threshold
        nodes.
        """
        lost = len(self.holders_in(name, cohort)) - len(self.holders_in(name, answered))
        return len(cohort) - len(cohort) * lost // self.threshold(name)

    def sum_digest(
        self, t: int, cohort: tuple[str, ...], members: tuple[str, ...], question: bytes, layout: str
    ) -> bytes:
        """What a node signs with its masked answer: which sum, over which nodes, of which question and layout."""
        return digest("sum", self.digest, t, cohort, members, digest("question", question), layout)


def signed_hello(run: str, name: str, exchange: bytes, verify: bytes) -> bytes:
    """What a node signs with its long-term key in exchange 0."""
    return digest("hello", run, name, exchange, verify)


def limbs_digest(limbs: np.ndarray) -> bytes:
    """SHA-256 of an encoded answer."""
    return digest("answer", np.ascontiguousarray(limbs).tobytes())


# ---- whether a sum can go on ----


def check_answers(group: Group, request: MaskRequest, answered: Collection[str], min_cohort: int) -> None:
    """Raise TooFewClients, before any share is given, if the total could not be unmasked or nodes would refuse to."""
    t = request.t
    cohort = request.cohort
    alive = set(answered)
    if len(alive) < min_cohort:
        raise TooFewClients(f"{len(alive)} nodes answered SUM {t}, {min_cohort} are needed: wait for more")
    for name in _with_masks_in_the_sum(group, cohort, alive):
        here = len(group.holders_in(name, alive))
        needed = group.threshold(name)
        if here < needed:
            raise TooFewClients(
                f"{here} of those who hold shares of {name} answered SUM {t}, {needed} are needed: wait for more"
            )
    least = min(group.least_total(name, cohort, alive) for name in alive)
    if least < min_cohort:
        raise TooFewClients(
            f"with {len(cohort) - len(alive)} of {len(cohort)} nodes lost in SUM {t} "
            f"a total is safe for {least} nodes only, {min_cohort} are needed: wait for more"
        )


def check_shares(group: Group, request: MaskRequest, answered: Collection[str], senders: Collection[str]) -> None:
    """Raise TooFewClients if some node's secret cannot be recovered from the shares that came."""
    for name in _with_masks_in_the_sum(group, request.cohort, set(answered)):
        here = len(group.holders_in(name, senders))
        needed = group.threshold(name)
        if here < needed:
            raise TooFewClients(
                f"{here} of those who hold shares of {name} sent them in SUM {request.t}, {needed} are needed: "
                "wait, or resume later with the same request"
            )


def _with_masks_in_the_sum(group: Group, cohort: Collection[str], alive: set[str]) -> Iterator[str]:
    """The nodes whose masks are in the sum: those who answered, and lost ones with a neighbour who did."""
    for name in cohort:
        if name in alive or any(peer in alive for peer in group.neighbours[name]):
            yield name
