"""The node's side of masked sums: per sum one masked answer (3 x numbers, uint64) and one share of 33 bytes per peer go up.

`MaskingNode` does no input or output. It answers four kinds of request and refuses, in one sentence, whatever could show this
node's own share. After each call `to_bytes()` must be in the vault before the reply leaves: a node that is killed and restored
from there gives the same bytes to the same request.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import BadParameter, MaskingRefused
from unpooled.secure import envelopes as sealed
from unpooled.secure import keys as k
from unpooled.secure import layout as layouts
from unpooled.secure import masks, ring, tags
from unpooled.secure.group import Group, limbs_digest, signed_hello
from unpooled.secure.messages import (
    Begun,
    Envelopes,
    Keys,
    Masked,
    MaskRequest,
    RevealRequest,
    Shares,
    Total,
    from_rows,
    to_array,
    to_count,
    to_limbs,
    to_names,
    to_rows,
)
from unpooled.secure.shamir import SHARE_BYTES
from unpooled.secure.state import NodeState, SumRecord
from unpooled.tree import Tree

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LEAST_COHORT = 3  # of two nodes each would know the other's share


class MaskingNode:
    """One node in the masked sums of one run.

    Parameters
    ----------
    name : str
        This node's name in the roster.
    secret : bytes
        32 or more random bytes that never leave the node's vault; all keys follow from them.
    identity : ec private key, default None
        The node's own key, which peers pin; None derives one from `secret`.
    pins : dict of str to str, default None
        Fingerprint of each peer's own key ("SHA256:..."); None takes the keys that the coordinator names.
    min_cohort : int, default 3
        The fewest nodes among whom this node lets its share be added.
    state : bytes, default None
        What `to_bytes` gave before, to go on with a run.

    Attributes
    ----------
    pinned : bool
        Whether peers' keys are compared with pins.

    Examples
    --------
    >>> node = MaskingNode("basel", secret=bytes(32))
    >>> node.hello("run 1").verify.shape
    (32,)
    """

    def __init__(
        self,
        name: str,
        secret: bytes,
        *,
        identity: EllipticCurvePrivateKey | None = None,
        pins: Mapping[str, str] | None = None,
        min_cohort: int = LEAST_COHORT,
        state: bytes | None = None,
    ) -> None:
        if min_cohort < LEAST_COHORT:
            raise BadParameter(
                f"min_cohort={min_cohort} would let a node see another's share: give {LEAST_COHORT} or more"
            )
        if len(secret) < 32:
            raise BadParameter(f"a secret of {len(secret)} bytes can be guessed: give 32 random ones")
        self.name, self.pins, self.min_cohort = name, pins, min_cohort
        self.pinned = pins is not None
        self._secret = secret
        self._identity = identity
        self._state = NodeState() if state is None else NodeState.from_bytes(state)

    def to_bytes(self) -> bytes:
        """Everything this node must remember of the run, for its vault."""
        return self._state.to_bytes()

    # ---- exchange 0: keys ----

    def hello(self, run: str) -> Keys:
        """This node's public keys of a run, signed by its own key; the same however often it is asked."""
        state = self._state
        if state.run not in ("", run):
            raise MaskingRefused(f"{self.name} keeps the keys of another run: begin this one with a new state")
        if state.hello is None:
            state.run, state.fresh = run, secrets.token_bytes(32)
            state.hello = self._signed_keys()
        return state.hello

    def _signed_keys(self) -> Keys:
        identity = self._identity if self._identity is not None else k.identity_from(self._secret)
        exchange, verify = k.public_bytes(self._exchange_key), k.public_bytes(self._signing_key)
        signature = k.sign_identity(identity, signed_hello(self._state.run, self.name, exchange, verify))
        return Keys(to_array(exchange), to_array(verify), to_array(k.identity_bytes(identity)), to_array(signature))

    @cached_property
    def _root(self) -> bytes:
        return k.derive(self._secret, "run", self._state.run, self._state.fresh)

    @cached_property
    def _exchange_key(self):
        return k.exchange_key(k.derive(self._root, "exchange key"))

    @cached_property
    def _signing_key(self):
        return k.signing_key(k.derive(self._root, "signing key"))

    # ---- exchange 1: roster ----

    def begin(self, roster: Mapping[str, Keys]) -> Begun:
        """Check who takes part, and give the envelopes of sum 1 and this node's part of the tag key."""
        if self._state.hello is None:
            raise MaskingRefused(f"{self.name} was not asked for its keys in this run: start with them")
        group = Group(self._state.run, roster)
        self._check_roster(group)
        if self._state.roster and self._group.digest != group.digest:
            raise MaskingRefused("the roster of this run has changed: a run keeps its nodes and their keys")
        self._state.roster = dict(roster)
        self.__dict__.pop("_group", None)
        part = self._part
        others = [name for name in group.names if name != self.name]
        parts = [sealed.seal_part(self._channel(name), self.name, name, part) for name in others]
        return Begun(to_rows(parts, sealed.SEALED_PART_BYTES), self.envelopes(1))

    def _check_roster(self, group: Group) -> None:
        hello = self._state.hello
        mine = group.keys.get(self.name)
        if (
            hello is None
            or mine is None
            or mine.exchange + mine.verify != hello.exchange.tobytes() + hello.verify.tobytes()
        ):
            raise MaskingRefused(
                f"the roster does not hold the keys that {self.name} gave: the coordinator changed them"
            )
        self._check_cohort(len(group.names), "are in the roster")
        for kind in ("exchange", "verify", "identity"):
            if len({getattr(keys, kind) for keys in group.keys.values()}) < len(group.names):
                raise MaskingRefused("two names in the roster have the same key: somebody takes part twice")
        for name in group.names:
            self._check_peer(group, name)

    def _check_peer(self, group: Group, name: str) -> None:
        keys = group.keys[name]
        if name != self.name:
            k.agree(self._exchange_key, keys.exchange, name)  # refuses keys of low order before anything is kept
        if self.pins is not None and name != self.name:
            if name not in self.pins:
                raise MaskingRefused(
                    f"{name} is not among the pinned peers: add its fingerprint to [peers] of the policy"
                )
            if self.pins[name] != k.fingerprint(keys.identity):
                raise MaskingRefused(f"the key of {name} is not the pinned one: it has {k.fingerprint(keys.identity)}")
        signed = signed_hello(group.run, name, keys.exchange, keys.verify)
        if not k.is_signed_by_identity(keys.signature, signed, keys.identity):
            raise MaskingRefused(f"the keys of {name} are not signed by its own key: the roster is forged")

    def _check_cohort(self, n: int, where: str) -> None:
        if n < self.min_cohort:
            raise MaskingRefused(f"{n} nodes {where}, min_cohort of {self.name} is {self.min_cohort}")

    @cached_property
    def _group(self) -> Group:
        if not self._state.roster:
            raise MaskingRefused(f"{self.name} has not seen the roster of this run: send it first")
        return Group(self._state.run, self._state.roster)

    @cached_property
    def _channels(self) -> dict[str, bytes]:
        return {}

    def _channel(self, peer: str) -> bytes:
        """The key that this node and a peer share for the whole run."""
        if peer not in self._channels:
            shared = k.agree(self._exchange_key, self._group.keys[peer].exchange, peer)
            self._channels[peer] = k.derive(shared, "channel", self._state.run, sorted((self.name, peer)))
        return self._channels[peer]

    @property
    def _part(self) -> bytes:
        return k.derive(self._root, "part of tag key")

    def envelopes(self, t: int) -> Envelopes:
        """The envelopes of sum t: always the same, so a node that missed a sum can be asked for them alone."""
        own = sealed.sum_secrets(self._root, to_count(t))
        peers = self._group.neighbours[self.name]
        shares = self._split(own, t)
        rows = [sealed.seal(self._channel(p), self.name, p, t, own.public_key, shares[p]) for p in peers]
        return Envelopes(t, to_array(own.public_key), to_array(own.commitment), to_rows(rows, sealed.SEALED_BYTES))

    def _split(self, own: sealed.SumSecrets, t: int) -> dict[str, bytes]:
        """The shares of this node's secrets, by holder."""
        group = self._group
        holders = group.holders(self.name)
        points = [group.point[name] for name in holders]
        shares = sealed.split_secrets(own, self._root, t, group.threshold(self.name), points)
        return dict(zip(holders, shares))

    # ---- exchange A: a masked answer ----

    def mask(self, request: MaskRequest, letter: bytes, question: bytes, answer: Tree) -> Masked:
        """This node's answer with masks that cancel in the total over all who answer.

        Parameters
        ----------
        request : MaskRequest
            Which sum, among whom; the same for all nodes.
        letter : bytes
            What the coordinator passes on to this node alone.
        question : bytes
            Everything that was asked (question, options, parameters), in a form that is the same at every node.
        answer : Tree
            This node's numbers.

        Returns
        -------
        Masked
            The masked answer, a signature of what was asked, and the envelopes of the next sum.
        """
        t, cohort, members = self._read_request(request)
        self._check_may_mask(t, cohort)
        layout, limbs = layouts.encode(answer, len(self._group.names))
        digest = self._group.sum_digest(t, cohort, members, question, layout)
        self._check_same_as_before(t, digest, limbs)
        self.learn(request, letter)
        received = self._open_envelopes(t, cohort, letter)
        own = sealed.sum_secrets(self._root, t)
        tagged = tags.append_tag(limbs, tags.TagKey(self._state.tag_key, digest), self.name)
        masked = self._add_masks(tagged, own, t, {peer: key for peer, (key, _) in received.items()})
        following = self.envelopes(t + 1)
        self._remember(SumRecord(
            t, digest, k.digest("question", question), limbs_digest(limbs), cohort,
            {self.name: self._split(own, t)[self.name], **{peer: shares for peer, (_, shares) in received.items()}},
        ))  # fmt: skip
        return Masked(t, masked, layout, to_array(self._signing_key.sign(digest)), following)

    def _read_request(self, request: MaskRequest) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        if not isinstance(request, MaskRequest):
            raise MaskingRefused("a masked answer was asked for without saying in which sum")
        cohort, members = to_names(request.cohort, "the cohort"), to_names(request.members, "the members")
        strangers = (set(cohort) | set(members)) - set(self._group.names)
        if strangers:
            raise MaskingRefused(f"{min(strangers)} is not in the roster of this run")
        return to_count(request.t), cohort, members

    def _check_may_mask(self, t: int, cohort: tuple[str, ...]) -> None:
        if self._state.last is not None and t < self._state.last.t:
            raise MaskingRefused(f"SUM {t} is over: {self.name} has answered SUM {self._state.last.t}")
        self._check_cohort(len(cohort), f"are in the cohort of SUM {t}")
        if self.name not in cohort:
            raise MaskingRefused(f"{self.name} is not in the cohort of SUM {t} but was asked to answer")
        if not self._group.has_enough_holders(self.name, cohort):
            near, needed = len(self._group.holders_in(self.name, cohort)), self._group.threshold(self.name)
            raise MaskingRefused(
                f"{near} holders of {self.name}'s shares are in the cohort of SUM {t}, {needed} are needed"
            )

    def _check_same_as_before(self, t: int, digest: bytes, limbs: np.ndarray) -> None:
        last = self._state.last
        if last is None or last.t != t:
            return
        if last.digest != digest:
            raise MaskingRefused(f"SUM {t} was asked before with another question or cohort: its masks are used once")
        if last.answer != limbs_digest(limbs):
            raise MaskingRefused(
                f"the answer of {self.name} to SUM {t} has changed since it left: its masks are used once"
            )

    def learn(self, request: MaskRequest, letter: bytes) -> None:
        """Take the parts of the tag key from the first letter, so that totals can be checked."""
        _, cohort, members = self._read_request(request)
        state = self._state
        if state.tag_key:
            if state.members != members:
                raise MaskingRefused("the members whose parts make up the tag key have changed within the run")
            return
        self._check_cohort(len(members), "make up the tag key")
        parts, _ = sealed.read_letter(letter, len(self._peers_in(cohort)))
        others = [name for name in members if name != self.name]
        if len(parts) != len(others):
            raise MaskingRefused(f"the first letter holds {len(parts)} parts of the tag key, {len(others)} are needed")
        opened = {p: sealed.open_part(self._channel(p), p, self.name, part) for p, part in zip(others, parts)}
        if self.name in members:
            opened[self.name] = self._part
        state.members = members
        state.tag_key = k.derive(b"".join(opened[name] for name in members), "tag key", state.run, members)

    def _peers_in(self, cohort: tuple[str, ...]) -> list[str]:
        inside = set(cohort)
        return [peer for peer in self._group.neighbours[self.name] if peer in inside]

    def _open_envelopes(self, t: int, cohort: tuple[str, ...], letter: bytes) -> dict[str, tuple[bytes, bytes]]:
        """(mask key, shares) that each neighbour in the cohort sent for this sum."""
        peers = self._peers_in(cohort)
        _, rows = sealed.read_letter(letter, len(peers))
        return {
            peer: (key, sealed.open_sealed(self._channel(peer), peer, self.name, t, key, content))
            for peer, (key, content) in zip(peers, rows)
        }

    def _add_masks(self, limbs: np.ndarray, own: sealed.SumSecrets, t: int, mask_keys: dict[str, bytes]) -> np.ndarray:
        size = limbs.shape[1]
        total = ring.RingSum(size)
        total.add(limbs)
        total.add(masks.mask(own.own_seed, size))
        for peer, public in mask_keys.items():
            mask = masks.mask(sealed.pair_seed(own.mask_key, public, self.name, peer, t), size)
            if self.name < peer:
                total.add(mask)
            else:
                total.subtract(mask)
        return total.total()

    def _remember(self, record: SumRecord) -> None:
        last = self._state.last
        if last is None or last.t != record.t:
            self._state.last = record

    # ---- exchange B: shares ----

    def reveal(self, request: RevealRequest) -> Shares:
        """One share for each neighbour in the cohort: of its own mask if it answered, of its mask key if it is lost."""
        record, answered, signatures = self._read_reveal(request)
        self._check_may_reveal(record, answered)
        self._check_signatures(record, answered, signatures)
        record.revealed = answered
        self._state.unmasked[record.question] = k.digest("answered", answered)
        alive = set(answered)
        rows = [self._share(record.held[name], name in alive) for name in sorted(record.held)]
        return Shares(record.t, to_rows(rows, SHARE_BYTES))

    def _read_reveal(self, request: RevealRequest) -> tuple[SumRecord, tuple[str, ...], list[bytes]]:
        if not isinstance(request, RevealRequest):
            raise MaskingRefused("shares were asked for without saying of which sum")
        t, answered = to_count(request.t), to_names(request.answered, "the names of those who answered")
        record = self._state.last
        if record is None or record.t != t:
            raise MaskingRefused(
                f"{self.name} gave no masked answer to SUM {t}, or has gone on since: it gives no shares"
            )
        return record, answered, from_rows(request.signatures, "the signatures", (len(answered), k.SIGNATURE_BYTES))

    def _check_may_reveal(self, record: SumRecord, answered: tuple[str, ...]) -> None:
        t, group = record.t, self._group
        if record.revealed is not None and record.revealed != answered:
            raise MaskingRefused(f"the shares of SUM {t} were given for another set of nodes: they are given once")
        if not set(answered) <= set(record.cohort):
            raise MaskingRefused(f"somebody outside the cohort of SUM {t} is said to have answered it")
        if self.name not in answered:
            raise MaskingRefused(f"{self.name} is said not to have answered SUM {t}, but it did: it gives no shares")
        self._check_cohort(len(answered), f"answered SUM {t}")
        if not group.has_enough_holders(self.name, answered):
            near, needed = len(group.holders_in(self.name, answered)), group.threshold(self.name)
            raise MaskingRefused(f"{near} holders of {self.name}'s shares answered SUM {t}, {needed} are needed")
        least = group.least_total(self.name, record.cohort, answered)
        self._check_cohort(least, f"would be left in SUM {t} if others were told that other nodes are lost")
        among = self._state.unmasked.get(record.question)
        if among is not None and among != k.digest("answered", answered):
            raise MaskingRefused(
                f"the total of SUM {t}'s question was shown before for other nodes: the two would tell a share"
            )

    def _check_signatures(self, record: SumRecord, answered: tuple[str, ...], signatures: list[bytes]) -> None:
        """Those who answered signed what this node was asked: the same question among the same nodes."""
        group = self._group
        near = set(group.neighbours[self.name])
        every = self.min_cohort > group.threshold(self.name)  # neighbours alone would not make up the least cohort
        for name, signature in zip(answered, signatures):
            if (name in near or every) and not k.is_signed(signature, record.digest, group.keys[name].verify):
                raise MaskingRefused(f"{name} did not sign what {self.name} was asked in SUM {record.t}")

    @staticmethod
    def _share(held: bytes, answered: bool) -> bytes:
        return held[SHARE_BYTES:] if answered else held[:SHARE_BYTES]

    # ---- the total, told with the next question ----

    def check_total(self, total: Total, question: bytes) -> Tree:
        """The total of a sum, after its tag has shown that it is the sum of what the nodes sent.

        Works for sums that this node missed too, once a letter (`learn`) has given it the tag key.
        """
        if not self._state.tag_key:
            raise MaskingRefused(f"{self.name} cannot check a total before it has a letter with the tag key")
        if not isinstance(total, Total):
            raise MaskingRefused("a total was told without its tag")
        _, cohort, members = self._read_request(MaskRequest(total.t, total.cohort, total.members))
        answered = to_names(total.answered, "the names of those who answered")
        limbs = to_limbs(total.limbs, "the total", layouts.size(total.layout) + tags.COORDINATES)
        digest = self._group.sum_digest(to_count(total.t), cohort, members, question, total.layout)
        if not tags.is_true_total(limbs, tags.TagKey(self._state.tag_key, digest), answered):
            raise MaskingRefused(f"the total of SUM {total.t} is not the sum of what the nodes sent: it was altered")
        return layouts.decode(total.layout, limbs[:, : -tags.COORDINATES])
