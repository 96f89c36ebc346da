"""A node as a member of a run with masked sums: its keys, the roster it accepted, its channels to peers and its envelopes.

An envelope holds shares of the node's two mask secrets, encrypted for one peer: with enough shares the peers can take its masks off a
total. The tag key, to which every node gives a part, lets nodes check totals. Sends nothing: `node` does.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from unpooled.errors import MaskingRefused
from unpooled.secure import envelopes as sealed
from unpooled.secure import keys as k
from unpooled.secure.group import Group, signed_hello
from unpooled.secure.messages import Begun, Envelopes, Keys, to_array, to_count, to_rows
from unpooled.secure.state import NodeState

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


class Member:
    """The part of a node that stays the same for a whole run."""

    def __init__(
        self,
        name: str,
        secret: bytes,
        identity: EllipticCurvePrivateKey | None,
        pins: Mapping[str, str] | None,
        min_cohort: int,
        state: NodeState,
    ) -> None:
        """A node of this name.

        `secret` is what all keys of the run are derived from, `identity` the long-term signing key (None derives it from `secret`), `pins`
        the known fingerprints of peers (None accepts any), `min_cohort` the fewest nodes in a sum, `state` what the node remembers.
        """
        self.name, self.pins, self.min_cohort, self.state = name, pins, min_cohort, state
        self._secret, self._identity = secret, identity
        self._channels: dict[str, bytes] = {}

    def check_cohort(self, n: int, where: str) -> None:
        """Refuse a sum over fewer nodes than this one accepts; `where` completes the sentence."""
        if n < self.min_cohort:
            raise MaskingRefused(f"{n} nodes {where}, min_cohort of {self.name} is {self.min_cohort}")

    # ---- exchange 0: keys ----

    def hello(self, run: str) -> Keys:
        """This node's public keys of a run, signed by its long-term key; the same on every call."""
        state = self.state
        if state.run not in ("", run):
            raise MaskingRefused(f"{self.name} keeps the keys of another run: begin this one with a new state")
        if state.hello is None:
            state.run, state.fresh = run, secrets.token_bytes(32)
            state.hello = self._signed_keys()
        return state.hello

    def _signed_keys(self) -> Keys:
        """The keys of this run with their signature."""
        identity = self._identity if self._identity is not None else k.identity_from(self._secret)
        exchange = k.public_bytes(self._exchange_key)
        verify = k.public_bytes(self.signing_key)
        signature = k.sign_identity(identity, signed_hello(self.state.run, self.name, exchange, verify))
        return Keys(to_array(exchange), to_array(verify), to_array(k.identity_bytes(identity)), to_array(signature))

    @cached_property
    def root(self) -> bytes:
        """The secret from which all of this node's secrets of the run are derived."""
        return k.derive(self._secret, "run", self.state.run, self.state.fresh)

    @cached_property
    def _exchange_key(self):
        """The X25519 key of the run."""
        return k.exchange_key(k.derive(self.root, "exchange key"))

    @cached_property
    def signing_key(self):
        """The Ed25519 key of the run."""
        return k.signing_key(k.derive(self.root, "signing key"))

    # ---- exchange 1: roster ----

    def begin(self, roster: Mapping[str, Keys]) -> Begun:
        """Check the roster; returns the envelopes of sum 1 and this node's part of the tag key."""
        if self.state.hello is None:
            raise MaskingRefused(f"{self.name} was not asked for its keys in this run: start with them")
        group = Group(self.state.run, roster)
        self._check_roster(group)
        if self.state.roster and self.group.digest != group.digest:
            raise MaskingRefused("the roster of this run has changed: a run keeps its nodes and their keys")
        self.state.roster = dict(roster)
        self.__dict__.pop("group", None)
        others = [name for name in group.names if name != self.name]
        parts = [sealed.seal_part(self.channel(name), self.name, name, self.part) for name in others]
        return Begun(to_rows(parts, sealed.SEALED_PART_BYTES), self.envelopes(1))

    def _check_roster(self, group: Group) -> None:
        """Refuse a roster without this node's keys, with too few nodes, repeated keys or wrong signatures."""
        if not self._holds_my_keys(group):
            raise MaskingRefused(
                f"the roster does not hold the keys that {self.name} gave: the coordinator changed them"
            )
        self.check_cohort(len(group.names), "are in the roster")
        for kind in ("exchange", "verify", "identity"):
            if len({getattr(keys, kind) for keys in group.keys.values()}) < len(group.names):
                raise MaskingRefused("two names in the roster have the same key: somebody takes part twice")
        for name in group.names:
            self._check_peer(group, name)

    def _holds_my_keys(self, group: Group) -> bool:
        """Whether the roster lists the keys that this node gave."""
        listed = group.keys.get(self.name)
        mine = k.public_bytes(self._exchange_key), k.public_bytes(self.signing_key)
        return listed is not None and (listed.exchange, listed.verify) == mine

    def _check_peer(self, group: Group, name: str) -> None:
        """Refuse a peer with an unusable key, another key than the pinned one, or a wrong signature."""
        keys = group.keys[name]
        if name != self.name:
            k.agree(self._exchange_key, keys.exchange, name)  # refuses keys of low order before anything is kept
            self._check_pin(name, k.fingerprint(keys.identity))
        signed = signed_hello(group.run, name, keys.exchange, keys.verify)
        if not k.is_signed_by_identity(keys.signature, signed, keys.identity):
            raise MaskingRefused(f"the keys of {name} are not signed by its own key: the roster is forged")

    def _check_pin(self, name: str, found: str) -> None:
        """Refuse a peer whose fingerprint `found` is not the pinned one; without pins all are accepted."""
        if self.pins is None:
            return
        if name not in self.pins:
            raise MaskingRefused(f"{name} is not among the pinned peers: add its fingerprint to [peers] of the policy")
        if self.pins[name] != found:
            raise MaskingRefused(f"the key of {name} is not the pinned one: it has {found}")

    @cached_property
    def group(self) -> Group:
        """The nodes of the run; MaskingRefused before the roster was accepted."""
        if not self.state.roster:
            raise MaskingRefused(f"{self.name} has not seen the roster of this run: send it first")
        return Group(self.state.run, self.state.roster)

    def channel(self, peer: str) -> bytes:
        """The key that this node and a peer share for the whole run."""
        if peer not in self._channels:
            shared = k.agree(self._exchange_key, self.group.keys[peer].exchange, peer)
            self._channels[peer] = k.derive(shared, "channel", self.state.run, sorted((self.name, peer)))
        return self._channels[peer]

    @cached_property
    def part(self) -> bytes:
        """This node's part of the tag key."""
        return k.derive(self.root, "part of tag key")

    def envelopes(self, t: int) -> Envelopes:
        """The envelopes of sum t; the same on every call, so a node that missed a sum can be asked for them alone."""
        own = sealed.sum_secrets(self.root, to_count(t))
        peers = self.group.neighbours[self.name]
        shares = self.split(own, t, peers)
        mask_key = own.public_key
        rows = [sealed.seal(self.channel(p), self.name, p, t, mask_key, shares[p]) for p in peers]
        return Envelopes(t, to_array(mask_key), to_array(own.commitment), to_rows(rows, sealed.SEALED_BYTES))

    def split(self, own: sealed.SumSecrets, t: int, holders: list[str]) -> dict[str, bytes]:
        """The shares of this node's secrets in sum t for some of its holders, by name."""
        points = [self.group.point[name] for name in holders]
        shares = sealed.split_secrets(own, self.root, t, self.group.threshold(self.name), points)
        return dict(zip(holders, shares))
