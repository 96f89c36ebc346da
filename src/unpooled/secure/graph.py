"""Which nodes mask with each other: all pairs up to 64 nodes, beyond that the k nearest on a shuffled ring.

Sends nothing.

A node's secrets are shared among its holders: its neighbours and itself. Any `threshold` of them can recover a secret.

References
----------
Bell, Bonawitz, Gascon, Lepoint, Raykova, Secure single-server aggregation with (poly)logarithmic overhead, CCS 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from math import comb

COMPLETE_UP_TO = 64  # nodes for which every pair masks
CORRUPT = 0.1  # the share of nodes that may collude with the coordinator
LOST = 0.2  # the share of nodes that may be lost in one sum
INSECURITY = 2.0**-40  # largest probability that colluding nodes hold too many shares of some node
FAILURE = 2.0**-20  # largest probability that a sum fails because too many holders of one node are lost


def threshold(n_holders: int) -> int:
    """How many of the holders' shares recover a secret: more than two thirds.

    A node gives a share of only one of a peer's two secrets. To recover both, a dishonest coordinator needs 2 t shares
    from h holders, so at least h / 3 of the holders must collude with it.

    >>> [threshold(h) for h in (3, 4, 5, 6, 10)]
    [3, 3, 4, 5, 7]
    """
    return 2 * n_holders // 3 + 1


def neighbours(names: Iterable[str], salt: bytes) -> dict[str, list[str]]:
    """The neighbours of each node, sorted by name; the salt determines the order of the ring."""
    ordered = sorted(names)
    n = len(ordered)
    if n <= COMPLETE_UP_TO:
        return {name: [other for other in ordered if other != name] for name in ordered}
    ring = sorted(ordered, key=lambda name: hashlib.sha256(salt + name.encode()).digest())
    half = degree(n) // 2
    steps = [s for s in range(-half, half + 1) if s != 0]
    return {name: sorted(ring[(i + s) % n] for s in steps) for i, name in enumerate(ring)}


@lru_cache
def degree(n: int) -> int:
    """The smallest even number of neighbours that keeps both risks below their bounds, or all of them.

    >>> degree(64), degree(100), degree(1000)
    (63, 60, 258)
    """
    if n <= COMPLETE_UP_TO:
        return n - 1
    return next((k for k in range(4, n - 1, 2) if _is_safe(n, k)), n - 1 - (n - 1) % 2)


def _is_safe(n: int, k: int) -> bool:
    """Whether k neighbours among n nodes keep the probabilities below INSECURITY and FAILURE."""
    corrupt = int(CORRUPT * n)
    lost = int(LOST * n)
    holders = k + 1
    t = threshold(holders)
    both_secrets = n * _more_than(2 * t - holders - 1, n - 1, corrupt, k)
    ring_is_cut = n**2 * ((corrupt + lost) / n) ** k  # k / 2 in a row missing at two places
    too_few_shares = n * _more_than(holders - t, n - 1, lost, k)
    return max(both_secrets, ring_is_cut) <= INSECURITY and too_few_shares <= FAILURE


def _more_than(c: int, n: int, marked: int, drawn: int) -> float:
    """P(more than c of `drawn` are marked), drawn from n with `marked` ones, without replacement: hypergeometric."""
    ways = sum(comb(marked, i) * comb(n - marked, drawn - i) for i in range(c + 1, min(marked, drawn) + 1))
    return ways / comb(n, drawn)
