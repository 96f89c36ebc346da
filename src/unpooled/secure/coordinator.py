"""The coordinator's side of masked sums: it passes envelopes on, adds masked answers, and unmasks only the total.

`MaskingCoordinator` does no input or output. It never repeats a sum with another cohort: answers that come after
`close` are left out, so that no two totals differ by one node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from unpooled.errors import BadParameter, MaskingRefused, TooFewClients
from unpooled.secure import layout as layouts
from unpooled.secure import tags
from unpooled.secure.group import Group, check_answers, check_shares
from unpooled.secure.keys import SIGNATURE_BYTES, digest, is_signed
from unpooled.secure.mailbox import Mailbox
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
    to_bytes,
    to_limbs,
    to_rows,
)
from unpooled.secure.node import LEAST_COHORT
from unpooled.secure.shamir import SHARE_BYTES
from unpooled.secure.unmask import unmask
from unpooled.tree import Tree


class MaskingCoordinator:
    """The coordinator in the masked sums of one run.

    Parameters
    ----------
    run : str
        The run's name, the same that nodes are given.
    min_cohort : int, default=3
        The fewest nodes of a sum; nodes have a limit of their own as well.

    Attributes
    ----------
    t : int
        The number of the coming or open sum, from 1.
    refused : dict of str to str
        Why an answer of the open sum was left out, by node.

    References
    ----------
    Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning, CCS 2017.
    Bell, Bonawitz, Gascon, Lepoint, Raykova, Secure single-server aggregation with (poly)logarithmic overhead, CCS
    2020.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.secure import MaskingNode
    >>> hub = MaskingCoordinator("run 1")
    >>> nodes = {name: MaskingNode(name, secret=bytes([i]) * 32) for i, name in enumerate("abc")}
    >>> for name, node in nodes.items():
    ...     hub.add_keys(name, node.hello("run 1"))
    >>> for name, node in nodes.items():
    ...     hub.add_begun(name, node.begin(hub.roster()))
    >>> request, letters = hub.ask(b"a question")
    >>> taken = [hub.add_masked(n, nodes[n].mask(request, letters[n], b"a question", {"x": np.ones(2)})) for n in nodes]
    >>> reveal = hub.close()
    >>> taken = [hub.add_shares(n, nodes[n].reveal(reveal)) for n in nodes]
    >>> decode_total(hub.finish())
    {'x': array([3., 3.])}
    """

    def __init__(self, run: str, *, min_cohort: int = LEAST_COHORT) -> None:
        """The coordinator of masked sums of `run`; no total is made of fewer than `min_cohort` answers."""
        if min_cohort < LEAST_COHORT:
            raise BadParameter(
                f"min_cohort={min_cohort} would let a node see another's share: give {LEAST_COHORT} or more"
            )
        self.run, self.min_cohort = run, min_cohort
        self.t = 1
        self.refused: dict[str, str] = {}
        self._mail = Mailbox(run)
        self._members: tuple[str, ...] = ()
        self._informed: set[str] = set()  # nodes that are known to have the tag key
        self._shown: dict[str, tuple[str, ...]] = {}  # digest of a question -> nodes in its total
        self._clear_sum()

    def _clear_sum(self) -> None:
        """Forget the open sum."""
        self._question = b""
        self._request: MaskRequest | None = None
        self._masked: dict[str, Masked] = {}
        self._reveal: RevealRequest | None = None
        self._shares: dict[str, Shares] = {}

    # ---- exchange 0 and 1 ----

    def add_keys(self, name: str, keys: Keys) -> None:
        """Take a node's keys (exchange 0)."""
        self._mail.add_keys(name, keys)

    def roster(self) -> dict[str, Keys]:
        """Everybody's keys, to be sent to all (exchange 1); from now on nobody can join."""
        return self._mail.roster(self.min_cohort)

    @property
    def group(self) -> Group:
        """The nodes of the roster; MaskingRefused while it is still open."""
        return self._mail.group

    def add_begun(self, name: str, begun: Begun) -> None:
        """Take a node's reply to the roster (exchange 1)."""
        self._mail.check_begun(name, begun)
        self._mail.begun.add(name)
        if not self._members:  # once sums have begun the tag key is fixed
            self._mail.parts[name] = begun.parts
        self.add_envelopes(name, begun.envelopes)

    def add_envelopes(self, name: str, envelopes: Envelopes) -> bool:
        """Take envelopes of the coming sum or of the one after it; False if they come too late."""
        return self._mail.add_envelopes(name, envelopes, self.t, is_open=self._request is not None)

    def missing(self) -> list[str]:
        """Nodes of the roster without envelopes of sum `t`: ask them for `envelopes(t)` and they take part in it."""
        return [name for name in self.group.names if name not in self._mail.envelopes]

    def not_begun(self) -> list[str]:
        """Nodes of the roster that never replied to it: send it to them again before they are asked for envelopes."""
        return [name for name in self.group.names if name not in self._mail.begun]

    # ---- exchange A ----

    def ask(self, question: bytes) -> tuple[MaskRequest, dict[str, bytes]]:
        """Open a sum: the request for all, and a letter for each node of the cohort.

        Called again while the sum is open, it gives the same request and letters.
        """
        if self._request is None:
            self._request = self._open_sum()
            self._question = question
        elif self._question != question:
            raise MaskingRefused(f"SUM {self.t} is still open: a new question can be asked after its total")
        return self._request, {name: self._letter(name) for name in self._request.cohort}

    def _open_sum(self) -> MaskRequest:
        """The request of a new sum; TooFewClients if too few nodes have sent envelopes."""
        cohort = self._choose_cohort()
        if len(cohort) < self.min_cohort:
            n = len(self._mail.envelopes)
            all_names = len(self.group.names)
            raise TooFewClients(
                f"{n} of {all_names} nodes sent envelopes for SUM {self.t}, which are too few: "
                "wait for more than two thirds"
            )
        if not self._members:
            self._members = tuple(sorted(self._mail.parts))
        self.refused = {}
        return MaskRequest(self.t, cohort, self._members)

    def _choose_cohort(self) -> tuple[str, ...]:
        """The nodes with envelopes, without those of whose holders too few have envelopes."""
        cohort = set(self._mail.envelopes)
        while too_few := {name for name in cohort if not self.group.has_enough_holders(name, cohort)}:
            cohort -= too_few
        return tuple(sorted(cohort))

    @property
    def _asked(self) -> MaskRequest:
        """The request of the open sum."""
        if self._request is None:
            raise MaskingRefused("no sum is open: ask a question first")
        return self._request

    def _letter(self, name: str) -> bytes:
        """The letter for one node: parts of the tag key, if it needs them, and its neighbours' envelopes."""
        authors = [] if name in self._informed else [m for m in self._members if m != name]
        return self._mail.letter(name, self._asked.cohort, authors)

    def add_masked(self, name: str, masked: Masked) -> bool:
        """Take a masked answer; False if it is late, in which case only its envelopes of the next sum are kept."""
        if not isinstance(masked, Masked):
            raise MaskingRefused(f"{name} sent something else instead of a masked answer")
        self.add_envelopes(name, masked.envelopes)
        late = self._request is None or self._reveal is not None or masked.t != self.t
        if late:
            return False
        self._check_masked(name, masked)
        self._masked[name] = masked
        return True

    def _check_masked(self, name: str, masked: Masked) -> None:
        """Refuse an answer from outside the cohort, of the wrong shape, or with a wrong signature."""
        if name not in self._asked.cohort:
            raise MaskingRefused(f"{name} is not in the cohort of SUM {self.t}")
        to_limbs(masked.limbs, f"the answer of {name}", layouts.size(masked.layout) + tags.COORDINATES)
        signed = self.group.sum_digest(self.t, self._asked.cohort, self._members, self._question, masked.layout)
        signature = to_bytes(masked.signature, f"the signature of {name}", SIGNATURE_BYTES)
        if not is_signed(signature, signed, self.group.keys[name].verify):
            raise MaskingRefused(f"{name} did not sign what it was asked in SUM {self.t}: its answer is left out")

    # ---- exchange B ----

    def close(self) -> RevealRequest:
        """Stop waiting for answers: fix who is in the total, and give the request of exchange B."""
        if self._reveal is None:
            answered = self._answered()
            check_answers(self.group, self._asked, answered, self.min_cohort)
            self._leave_out_others(answered)
            signatures = [self._masked[name].signature.tobytes() for name in answered]
            self._reveal = RevealRequest(self.t, answered, to_rows(signatures, SIGNATURE_BYTES))
            self._shown[digest(self._question).hex()] = answered
        return self._reveal

    def _answered(self) -> tuple[str, ...]:
        """Who is in the total: the nodes whose answers have the layout that most answers have.

        A repeated question is summed over the nodes of its first total; TooFewClients if one of them is missing.
        """
        layouts_sent = Counter(masked.layout for masked in self._masked.values())
        most = max(layouts_sent, key=lambda layout: (layouts_sent[layout], layout), default="")
        alike = {name for name, masked in self._masked.items() if masked.layout == most}
        before = self._shown.get(digest(self._question).hex())
        if before is None:
            return tuple(sorted(alike))
        if not alike >= set(before):
            gone = min(set(before) - alike)
            raise TooFewClients(
                f"SUM {self.t} repeats a question whose total was shown with {gone}, which is missing now: wait for it"
            )
        return tuple(before)

    def _leave_out_others(self, answered: tuple[str, ...]) -> None:
        """Drop the answers that are not in the total, and note why in `refused`."""
        layout = self._masked[answered[0]].layout
        for name in set(self._masked) - set(answered):
            alike = self._masked.pop(name).layout == layout
            why = "was not in the first total of this question" if alike else "has other shapes than most"
            self.refused[name] = f"the answer of {name} {why}: it is left out of SUM {self.t}"

    def add_shares(self, name: str, shares: Shares) -> bool:
        """Take a node's shares; False if they are of a sum that is over."""
        if not isinstance(shares, Shares):
            raise MaskingRefused(f"{name} sent something else instead of shares")
        if self._reveal is None or shares.t != self.t:
            return False
        if name not in self._reveal.answered:
            raise MaskingRefused(f"{name} is not among those who answered SUM {self.t}: its shares are not taken")
        holders = self.group.holders_in(name, set(self._asked.cohort))
        from_rows(shares.shares, f"the shares from {name}", (len(holders), SHARE_BYTES))
        self._shares[name] = shares
        return True

    def finish(self) -> Total:
        """Unmask the sum of all answers and move on to the next sum.

        Returns
        -------
        Total
            The total over those who answered, with its tag; `decode_total` gives the numbers.
        """
        reveal = self._reveal
        if reveal is None:
            raise MaskingRefused(f"SUM {self.t} is not closed: shares were not asked for yet")
        check_shares(self.group, self._asked, reveal.answered, self._shares)
        limbs = unmask(self.group, self._asked, reveal, self._mail.envelopes, self._masked, self._shares)
        answered = reveal.answered
        layout = self._masked[answered[0]].layout
        total = Total(self.t, self._asked.cohort, self._members, answered, layout, limbs)
        self._informed |= set(answered)
        self.t += 1
        self._mail.next_sum()
        self._clear_sum()
        return total

    # ---- for a coordinator that is stopped and resumed ----

    def state(self) -> Tree:
        """Everything needed to continue, as a Tree that can be saved."""
        return {
            "run": self.run,
            "min_cohort": self.min_cohort,
            "t": self.t,
            **self._mail.state(),
            "members": self._members,
            "informed": tuple(sorted(self._informed)),
            "shown": dict(self._shown),
            "question": to_array(self._question),
            "request": self._request,
            "masked": dict(self._masked),
            "reveal": self._reveal,
            "shares": dict(self._shares),
        }

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> MaskingCoordinator:
        """The coordinator that `state` saved."""
        self = cls(saved["run"], min_cohort=saved["min_cohort"])
        self.t = saved["t"]
        self._mail = Mailbox.from_state(self.run, saved)
        self._members, self._informed = tuple(saved["members"]), set(saved["informed"])
        self._shown = {question: tuple(names) for question, names in saved["shown"].items()}
        self._question = saved["question"].tobytes()
        self._request = saved["request"]
        self._masked, self._reveal, self._shares = dict(saved["masked"]), saved["reveal"], dict(saved["shares"])
        return self


def decode_total(total: Total) -> Tree:
    """The numbers of a total, in the structure of each node's answer."""
    return layouts.decode(total.layout, total.limbs[:, : -tags.COORDINATES])
