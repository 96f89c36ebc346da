"""Unmasking a sum: remove the own masks of nodes that answered, and their pair masks with nodes that did not.

Sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from unpooled.errors import MaskingRefused
from unpooled.secure import envelopes as sealed
from unpooled.secure import masks, ring, shamir
from unpooled.secure.group import Group
from unpooled.secure.keys import digest, exchange_key, public_bytes
from unpooled.secure.messages import Envelopes, Masked, MaskRequest, RevealRequest, Shares


def unmask(
    group: Group,
    request: MaskRequest,
    reveal: RevealRequest,
    envelopes: Mapping[str, Envelopes],
    masked: Mapping[str, Masked],
    shares: Mapping[str, Shares],
) -> np.ndarray:
    """The total over the nodes that answered, without their masks.

    Parameters
    ----------
    group : Group
        The nodes of the run and their keys.
    request, reveal : MaskRequest, RevealRequest
        What the two exchanges asked for.
    envelopes : mapping of str to Envelopes
        What each node sent ahead.
    masked : mapping of str to Masked
        Masked answers by node.
    shares : mapping of str to Shares
        Shares of secrets that nodes revealed in the second exchange.

    Returns
    -------
    array of shape (3, m)
        The m numbers as limbs of 64 bits.
    """
    size = masked[reveal.answered[0]].limbs.shape[1]
    total = ring.RingSum(size)
    by_owner = _by_owner(group, request, shares)
    for name in reveal.answered:
        total.add(masked[name].limbs)
        seed = _own_seed(group, name, envelopes[name], by_owner[name])
        total.subtract(masks.mask(seed, size))
    for lost in sorted(set(request.cohort) - set(reveal.answered)):
        _remove_pairs(total, size, group, lost, reveal, envelopes, by_owner.get(lost, {}))
    return total.total()


def _by_owner(group: Group, request: MaskRequest, shares: Mapping[str, Shares]) -> dict[str, dict[int, int]]:
    """Shares by the node whose secret they are of, then by the holder's point."""
    cohort = set(request.cohort)
    out: dict[str, dict[int, int]] = {}
    for holder, message in shares.items():
        for owner, row in zip(group.holders_in(holder, cohort), message.shares):
            out.setdefault(owner, {})[group.point[holder]] = int.from_bytes(row.tobytes(), "big")
    return out


def _own_seed(group: Group, name: str, sent: Envelopes, shares: dict[int, int]) -> bytes:
    """The seed of a node's own mask, recovered from shares and checked against its commitment."""
    wanted = sent.commitment.tobytes()
    return _recover(group, name, shares, lambda seed: digest("own seed", seed) == wanted)


def _mask_key(group: Group, name: str, sent: Envelopes, shares: dict[int, int]) -> bytes:
    """The mask key of a lost node, recovered from shares and checked against its public key."""
    wanted = sent.mask_key.tobytes()
    return _recover(group, name, shares, lambda key: public_bytes(exchange_key(key)) == wanted)


def _recover(group: Group, name: str, shares: dict[int, int], is_right) -> bytes:
    """A secret from as many shares as are needed; if a share is false, other combinations are tried."""
    points = sorted(shares)
    needed = group.threshold(name)
    for start in range(len(points) if len(points) > needed else 1):
        chosen = [points[(start + i) % len(points)] for i in range(needed)]
        secret = shamir.combine({x: shares[x] for x in chosen})
        if is_right(secret):
            return secret
    raise MaskingRefused(f"the shares of {name} do not fit together: one of their holders sent a false share")


def _remove_pairs(
    total: ring.RingSum,
    size: int,
    group: Group,
    lost: str,
    reveal: RevealRequest,
    envelopes: Mapping[str, Envelopes],
    shares: dict[int, int],
) -> None:
    """Remove the pair masks of one lost node with the nodes that answered."""
    answered = set(reveal.answered)
    peers = [peer for peer in group.neighbours[lost] if peer in answered]
    if not peers:
        return
    key = _mask_key(group, lost, envelopes[lost], shares)
    for peer in peers:
        seed = sealed.pair_seed(key, envelopes[peer].mask_key.tobytes(), lost, peer, reveal.t)
        mask = masks.mask(seed, size)
        if peer < lost:
            total.subtract(mask)
        else:
            total.add(mask)
