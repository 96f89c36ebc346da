"""An exact answer becomes a noisy one that may leave: the same for a layer in this process and for a node. Sends nothing of its own.

What a node does with a look: take the exact answer, `release` it, see whether the release was paid for before, charge it if not, write that
down, and only then send it.
"""

from __future__ import annotations

from typing import NamedTuple

from unpooled.privacy.noise import add_noise, digest, seed_of
from unpooled.tree import Tree


class Release(NamedTuple):
    """What may leave, and the name under which it is paid for."""

    answer: Tree  # with noise
    name: bytes  # 32 bytes: equal for the same request about the same rows, which then costs nothing and has the same noise


def release(exact: Tree, request: bytes, secret: bytes, sigma: float, whose: str = "") -> Release:
    """An answer with noise that depends on the secret, the request and the exact answer alone.

    Parameters
    ----------
    exact : Tree
        The answer without noise.
    request : bytes
        From `unpooled.privacy.noise.request_digest`.
    secret : bytes
        Known to whoever answers, and to nobody else.
    sigma : float
        Standard deviation of the noise: `sigma_of(mu2, sensitivity)`, or its share of it where several add noise to one total.
    whose : str, default ""
        The client that answers, so that clients with one secret have different noise.

    Returns
    -------
    release : Release
    """
    seed = seed_of(secret, request + whose.encode(), digest(exact))
    return Release(add_noise(exact, sigma, seed), name_of(seed))


def name_of(seed: bytes) -> bytes:
    """A name that does not tell the seed."""
    return digest({"release": seed.hex()})
