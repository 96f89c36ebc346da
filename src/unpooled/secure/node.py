"""The node's side of masked sums.

Per sum a node sends one masked answer (each number as three uint64 limbs) and one share of 33 bytes per peer.

`MaskingNode` does no input or output. It answers four kinds of request and refuses, in one sentence, whatever could
reveal this node's own share. After each call, `to_bytes()` must be in the vault before the reply leaves: a node that is
killed and restored from there gives the same bytes to the same request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import BadParameter, MaskingRefused
from unpooled.secure import envelopes as sealed
from unpooled.secure import keys as k
from unpooled.secure import layout as layouts
from unpooled.secure import masks, ring, tags
from unpooled.secure.group import limbs_digest
from unpooled.secure.member import Member
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

LEAST_COHORT = 3  # with two nodes, each could subtract its own share from the total


class MaskingNode:
    """One node in the masked sums of one run.

    Parameters
    ----------
    name : str
        This node's name in the roster.
    secret : bytes
        32 or more random bytes that never leave the node's vault; all keys are derived from them.
    identity : EllipticCurvePrivateKey or None, default=None
        The node's long-term key, which peers pin; None derives one from `secret`.
    pins : dict of str to str or None, default=None
        Fingerprint of each peer's long-term key ("SHA256:..."); None trusts the keys that the coordinator sends.
    min_cohort : int, default=3
        The fewest nodes over which this node lets its share be summed.
    state : bytes or None, default=None
        What `to_bytes` returned before, to continue a run.

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
        self.name, self.min_cohort = name, min_cohort
        self.pinned = pins is not None
        self._state = NodeState() if state is None else NodeState.from_bytes(state)
        self._member = Member(name, secret, identity, pins, min_cohort, self._state)

    @property
    def run(self) -> str:
        """The run whose keys this node gave; empty before `hello`."""
        return self._state.run

    def to_bytes(self) -> bytes:
        """Everything this node must remember of the run, for its vault."""
        return self._state.to_bytes()

    # ---- exchanges 0 and 1: keys and roster ----

    def hello(self, run: str) -> Keys:
        """This node's public keys of a run, signed by its long-term key; the same on every call."""
        return self._member.hello(run)

    def begin(self, roster: Mapping[str, Keys]) -> Begun:
        """Check the roster; returns the envelopes of sum 1 and this node's part of the tag key."""
        return self._member.begin(roster)

    def envelopes(self, t: int) -> Envelopes:
        """The envelopes of sum t; the same on every call, so a node that missed a sum can be asked for them alone."""
        return self._member.envelopes(t)

    # ---- exchange A: a masked answer ----

    def mask(self, request: MaskRequest, letter: bytes, question: bytes, answer: Tree) -> Masked:
        """This node's answer with masks that cancel in the total over all who answer.

        Parameters
        ----------
        request : MaskRequest
            Which sum, over which nodes; the same for all nodes.
        letter : bytes
            What the coordinator sends to this node alone.
        question : bytes
            What was asked (question, options, parameters), as bytes that are the same at every node.
        answer : Tree
            This node's numbers.

        Returns
        -------
        Masked
            The masked answer, a signature of what was asked, and the envelopes of the next sum.
        """
        t, cohort, members = self._read_request(request)
        self._check_may_mask(t, cohort)
        layout, limbs = layouts.encode(answer, len(self._member.group.names))
        digest = self._member.group.sum_digest(t, cohort, members, question, layout)
        self._check_same_as_before(t, digest, limbs)
        self.learn(request, letter)
        received = self._open_envelopes(t, cohort, letter)
        own = sealed.sum_secrets(self._member.root, t)
        tagged = tags.append_tag(limbs, tags.TagKey(self._state.tag_key, digest), self.name)
        masked = self._add_masks(tagged, own, t, {peer: key for peer, (key, _) in received.items()})
        following = self.envelopes(t + 1)
        held = {peer: shares for peer, (_, shares) in received.items()}
        held |= self._member.split(own, t, [self.name])
        asked = k.question_digest(question)
        self._remember(SumRecord(t, digest, asked, limbs_digest(limbs), cohort, held))
        return Masked(t, masked, layout, to_array(self._member.signing_key.sign(digest)), following)

    def _read_request(self, request: MaskRequest) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """(t, cohort, members) of a request; MaskingRefused for names outside the roster."""
        if not isinstance(request, MaskRequest):
            raise MaskingRefused("a masked answer was asked for without saying in which sum")
        cohort = to_names(request.cohort, "the cohort")
        members = to_names(request.members, "the members")
        strangers = (set(cohort) | set(members)) - set(self._member.group.names)
        if strangers:
            raise MaskingRefused(f"{min(strangers)} is not in the roster of this run")
        return to_count(request.t), cohort, members

    def _check_may_mask(self, t: int, cohort: tuple[str, ...]) -> None:
        """Refuse a sum that is over, too small, without this node, or without enough of its holders."""
        if self._state.last is not None and t < self._state.last.t:
            raise MaskingRefused(f"SUM {t} is over: {self.name} has answered SUM {self._state.last.t}")
        self._member.check_cohort(len(cohort), f"are in the cohort of SUM {t}")
        if self.name not in cohort:
            raise MaskingRefused(f"{self.name} is not in the cohort of SUM {t} but was asked to answer")
        self._check_holders(cohort, f"are in the cohort of SUM {t}")

    def _check_holders(self, names: tuple[str, ...], where: str) -> None:
        """Refuse a sum with too few holders of this node's shares: its total could not be unmasked."""
        group = self._member.group
        near = len(group.holders_in(self.name, names))
        needed = group.threshold(self.name)
        if near < needed:
            raise MaskingRefused(f"{near} holders of {self.name}'s shares {where}, {needed} are needed")

    def _check_same_as_before(self, t: int, digest: bytes, limbs: np.ndarray) -> None:
        """Refuse to mask twice in one sum unless question, cohort and answer are the same."""
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
        self._member.check_cohort(len(members), "make up the tag key")
        parts, _ = sealed.read_letter(letter, len(self._peers_in(cohort)))
        others = [name for name in members if name != self.name]
        if len(parts) != len(others):
            raise MaskingRefused(f"the first letter holds {len(parts)} parts of the tag key, {len(others)} are needed")
        opened = {p: sealed.open_part(self._member.channel(p), p, self.name, part) for p, part in zip(others, parts)}
        if self.name in members:
            opened[self.name] = self._member.part
        state.members = members
        state.tag_key = k.derive(b"".join(opened[name] for name in members), "tag key", state.run, members)

    def _peers_in(self, cohort: tuple[str, ...]) -> list[str]:
        """This node's neighbours in the cohort."""
        inside = set(cohort)
        return [peer for peer in self._member.group.neighbours[self.name] if peer in inside]

    def _open_envelopes(self, t: int, cohort: tuple[str, ...], letter: bytes) -> dict[str, tuple[bytes, bytes]]:
        """(mask key, shares) that each neighbour in the cohort sent for this sum."""
        peers = self._peers_in(cohort)
        _, rows = sealed.read_letter(letter, len(peers))
        return {
            peer: (key, sealed.open_sealed(self._member.channel(peer), peer, self.name, t, key, content))
            for peer, (key, content) in zip(peers, rows)
        }

    def _add_masks(self, limbs: np.ndarray, own: sealed.SumSecrets, t: int, mask_keys: dict[str, bytes]) -> np.ndarray:
        """The limbs (3, m) with this node's own mask and, with opposite signs at both ends, the pair masks."""
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
        """Keep the record of a new sum; a repeated request keeps the first record."""
        last = self._state.last
        if last is None or last.t != record.t:
            self._state.last = record

    # ---- exchange B: shares ----

    def reveal(self, request: RevealRequest) -> Shares:
        """One share for each neighbour in the cohort: of its own mask's seed if it answered, else of its mask key."""
        record, answered, signatures = self._read_reveal(request)
        self._check_may_reveal(record, answered)
        self._check_signatures(record, answered, signatures)
        record.revealed = answered
        self._state.unmasked[record.question] = k.digest("answered", answered)
        alive = set(answered)
        rows = [self._share(record.held[name], name in alive) for name in sorted(record.held)]
        return Shares(record.t, to_rows(rows, SHARE_BYTES))

    def question_of(self, t: int) -> bytes:
        """A digest of the question of sum `t`, which this node answered last; MaskingRefused for any other sum."""
        record = self._state.last
        if record is None or record.t != t:
            raise MaskingRefused(
                f"{self.name} gave no masked answer to SUM {t}, or has gone on since: it gives no shares"
            )
        return record.question

    def _read_reveal(self, request: RevealRequest) -> tuple[SumRecord, tuple[str, ...], list[bytes]]:
        """(record, names that answered, their signatures); MaskingRefused for another sum than the last."""
        if not isinstance(request, RevealRequest):
            raise MaskingRefused("shares were asked for without saying of which sum")
        t = to_count(request.t)
        answered = to_names(request.answered, "the names of those who answered")
        self.question_of(t)  # refuses any other sum than the last
        record = self._state.last
        assert record is not None
        return record, answered, from_rows(request.signatures, "the signatures", (len(answered), k.SIGNATURE_BYTES))

    def _check_may_reveal(self, record: SumRecord, answered: tuple[str, ...]) -> None:
        """Refuse shares that could reveal a single answer: for two sets of nodes, or for too few."""
        t, group = record.t, self._member.group
        if record.revealed is not None and record.revealed != answered:
            raise MaskingRefused(f"the shares of SUM {t} were given for another set of nodes: they are given once")
        if not set(answered) <= set(record.cohort):
            raise MaskingRefused(f"somebody outside the cohort of SUM {t} is said to have answered it")
        if self.name not in answered:
            raise MaskingRefused(f"{self.name} is said not to have answered SUM {t}, but it did: it gives no shares")
        self._member.check_cohort(len(answered), f"answered SUM {t}")
        self._check_holders(answered, f"answered SUM {t}")
        least = group.least_total(self.name, record.cohort, answered)
        self._member.check_cohort(least, f"would be left in SUM {t} if others were told that other nodes are lost")
        among = self._state.unmasked.get(record.question)
        if among is not None and among != k.digest("answered", answered):
            raise MaskingRefused(
                f"the total of SUM {t}'s question was shown before for other nodes: the two would reveal a share"
            )

    def _check_signatures(self, record: SumRecord, answered: tuple[str, ...], signatures: list[bytes]) -> None:
        """Refuse unless those who answered signed the same question over the same nodes."""
        group = self._member.group
        near = set(group.neighbours[self.name])
        every = self.min_cohort > group.threshold(self.name)  # neighbours alone would not make up the least cohort
        for name, signature in zip(answered, signatures):
            if (name in near or every) and not k.is_signed(signature, record.digest, group.keys[name].verify):
                raise MaskingRefused(f"{name} did not sign what {self.name} was asked in SUM {record.t}")

    @staticmethod
    def _share(held: bytes, answered: bool) -> bytes:
        """The half of the held shares that is given: of the own seed if the peer answered, else of the mask key."""
        return held[SHARE_BYTES:] if answered else held[:SHARE_BYTES]

    # ---- the total, sent with the next question ----

    def check_total(self, total: Total, question: bytes) -> Tree:
        """The numbers of a total, after its tag has shown that it is the sum of what the nodes sent.

        Works for sums that this node missed too, once a letter (`learn`) has given it the tag key.
        """
        if not self._state.tag_key:
            raise MaskingRefused(f"{self.name} cannot check a total before it has a letter with the tag key")
        if not isinstance(total, Total):
            raise MaskingRefused("a total was sent without its tag")
        _, cohort, members = self._read_request(MaskRequest(total.t, total.cohort, total.members))
        answered = to_names(total.answered, "the names of those who answered")
        limbs = to_limbs(total.limbs, "the total", layouts.size(total.layout) + tags.COORDINATES)
        digest = self._member.group.sum_digest(to_count(total.t), cohort, members, question, total.layout)
        if not tags.is_true_total(limbs, tags.TagKey(self._state.tag_key, digest), answered):
            raise MaskingRefused(f"the total of SUM {total.t} is not the sum of what the nodes sent: it was altered")
        return layouts.decode(total.layout, limbs[:, : -tags.COORDINATES])
