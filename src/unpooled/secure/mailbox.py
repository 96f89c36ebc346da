"""What the coordinator of masked sums passes on between nodes: keys, parts of the tag key, and sealed envelopes.

It cannot open an envelope; it checks shapes only, so that a damaged message is refused where it comes in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from unpooled.errors import MaskingRefused, TooFewClients
from unpooled.secure import envelopes as sealed
from unpooled.secure.group import Group, PublicKeys
from unpooled.secure.keys import KEY_BYTES
from unpooled.secure.messages import Begun, Envelopes, Keys, from_rows, to_bytes


class Mailbox:
    """Keys, parts of the tag key and envelopes of one run.

    Parameters
    ----------
    run : str
        The run's name, the same that nodes are given.

    Attributes
    ----------
    envelopes : dict of str to Envelopes
        Those of the coming or open sum, by sender.
    parts : dict of str to ndarray
        Sealed parts of the tag key, one row for each other node, by sender.
    begun : set of str
        The nodes that replied to the roster.
    """

    def __init__(self, run: str) -> None:
        """An open roster, and no envelopes yet."""
        self.run = run
        self.parts: dict[str, Any] = {}
        self.begun: set[str] = set()
        self.envelopes: dict[str, Envelopes] = {}
        self._keys: dict[str, Keys] = {}
        self._group: Group | None = None
        self._following: dict[str, Envelopes] = {}  # of the sum after the coming one

    def add_keys(self, name: str, keys: Keys) -> None:
        """Take a node's keys."""
        if self._group is not None:
            raise MaskingRefused(f"the roster of this run is closed: {name} can take part in the next run")
        PublicKeys(name, keys)
        self._keys[name] = keys

    def roster(self, min_cohort: int) -> dict[str, Keys]:
        """Everybody's keys; from now on nobody can join. TooFewClients where there are fewer than `min_cohort`."""
        if len(self._keys) < min_cohort:
            raise TooFewClients(f"{len(self._keys)} nodes gave keys for masked sums, {min_cohort} are needed")
        if self._group is None:
            self._group = Group(self.run, self._keys)
        return dict(self._keys)

    @property
    def group(self) -> Group:
        """The nodes of the roster; MaskingRefused while it is still open."""
        if self._group is None:
            raise MaskingRefused("the roster of this run is still open: send it to the nodes first")
        return self._group

    def check_begun(self, name: str, begun: Begun) -> None:
        """Refuse a reply to the roster of the wrong kind or shape."""
        if not isinstance(begun, Begun):
            raise MaskingRefused(f"{name} sent no envelopes in reply to the roster")
        from_rows(begun.parts, f"the parts of {name}", (len(self.group.names) - 1, sealed.SEALED_PART_BYTES))

    def add_envelopes(self, name: str, envelopes: Envelopes, t: int, is_open: bool) -> bool:
        """Take envelopes of sum `t`, unless it is open already, or of the one after it; False if they come too late."""
        self._check_envelopes(name, envelopes)
        if envelopes.t == t and not is_open:
            self.envelopes[name] = envelopes
        elif envelopes.t == t + 1:
            self._following[name] = envelopes
        else:
            return False
        return True

    def _check_envelopes(self, name: str, envelopes: Envelopes) -> None:
        """Refuse envelopes from a stranger or of the wrong shape."""
        if name not in self.group.point:
            raise MaskingRefused(f"{name} is not in the roster of this run")
        if not isinstance(envelopes, Envelopes):
            raise MaskingRefused(f"{name} sent something else instead of envelopes")
        to_bytes(envelopes.mask_key, f"the mask key of {name}", KEY_BYTES)
        to_bytes(envelopes.commitment, f"the commitment of {name}", KEY_BYTES)
        shape = (len(self.group.neighbours[name]), sealed.SEALED_BYTES)
        from_rows(envelopes.sealed, f"the envelopes of {name}", shape)

    def next_sum(self) -> None:
        """The sum is over: the envelopes of the following one are now those of the coming one."""
        self.envelopes = self._following
        self._following = {}

    # ---- letters ----

    def letter(self, name: str, cohort: Collection[str], authors: Collection[str]) -> bytes:
        """The letter for one node: the authors' parts of the tag key for it, and its neighbours' envelopes."""
        parts = [self.parts[other][self._row(other, name)].tobytes() for other in authors]
        inside = set(cohort)
        peers = [peer for peer in self.group.neighbours[name] if peer in inside]
        return sealed.write_letter(parts, [self._envelope(peer, name) for peer in peers])

    def _row(self, sender: str, receiver: str) -> int:
        """The position of a receiver among all nodes but the sender."""
        row = self.group.point[receiver] - 1
        return row - (self.group.point[receiver] > self.group.point[sender])

    def _envelope(self, sender: str, receiver: str) -> tuple[bytes, bytes]:
        """(mask key of the sender, its envelope for the receiver)."""
        envelopes = self.envelopes[sender]
        row = self.group.neighbours[sender].index(receiver)
        return envelopes.mask_key.tobytes(), envelopes.sealed[row].tobytes()

    # ---- for a coordinator that is stopped and resumed ----

    def state(self) -> dict[str, Any]:
        """Everything needed to continue, as entries of a Tree."""
        return {
            "closed": self._group is not None,
            "keys": dict(self._keys),
            "parts": dict(self.parts),
            "begun": tuple(sorted(self.begun)),
            "envelopes": dict(self.envelopes),
            "following": dict(self._following),
        }

    @classmethod
    def from_state(cls, run: str, saved: Mapping[str, Any]) -> Mailbox:
        """The mailbox that `state` saved."""
        self = cls(run)
        self._keys, self.parts, self.begun = dict(saved["keys"]), dict(saved["parts"]), set(saved["begun"])
        self._group = Group(run, self._keys) if saved["closed"] else None
        self.envelopes, self._following = dict(saved["envelopes"]), dict(saved["following"])
        return self
