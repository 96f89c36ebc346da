"""Whether a sum can go on: enough answers to unmask a total safely, and enough shares to do so. Sends nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from unpooled.errors import TooFewClients
from unpooled.secure.group import Group
from unpooled.secure.messages import MaskRequest


def check_answers(group: Group, request: MaskRequest, answered: Collection[str], min_cohort: int) -> None:
    """Raise TooFewClients, before any share is given, if the total could not be unmasked or nodes would refuse to."""
    t, cohort, alive = request.t, request.cohort, set(answered)
    if len(alive) < min_cohort:
        raise TooFewClients(f"{len(alive)} nodes answered SUM {t}, {min_cohort} are needed: wait for more")
    for name in _with_masks_in_the_sum(group, cohort, alive):
        here, needed = len(group.holders_in(name, alive)), group.threshold(name)
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
        here, needed = len(group.holders_in(name, senders)), group.threshold(name)
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
