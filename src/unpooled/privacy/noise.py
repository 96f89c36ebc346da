"""Noise on an answer: all floats of a Tree as one vector, rounded to a grid, plus integers of the discrete Gaussian. Sends nothing.

The grid is sigma / 2^34, so rounding moves an answer by less than 1e-9 sigma for as many as 100 numbers. The seed follows from a secret,
the request and the exact answer: the same request about the same rows gets the same noise, which tells nothing new; changed rows get fresh
noise. It never comes from `client.rng`, whose seed the coordinator knows.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.privacy.sampler import WIDTH, DiscreteGaussian
from unpooled.tree import Tree

SLACK = 1e-6  # more noise than the sensitivity asks for: covers every rounding between a row and the grid


def sigma_of(mu2: float, sensitivity: float = 1.0) -> float:
    """The standard deviation of the noise of a look that costs mu2."""
    return sensitivity * (1 + SLACK) / float(np.sqrt(mu2))


def digest(value: Tree) -> bytes:
    """SHA-256 of a value: of its structure, and of the shapes, types and bytes of its arrays."""
    structure, arrays = tree.pack(value)
    found = hashlib.sha256(structure.encode())
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.digest()


def request_digest(question: str, options: Mapping[str, Any], down: Tree, mu2: float) -> bytes:
    """SHA-256 of all that a look asks: the question, its options, what came down, and the wanted mu2."""
    head = json.dumps([question, {k: options[k] for k in sorted(options)}, float(mu2).hex()], default=str)
    return hashlib.sha256(head.encode() + digest(down)).digest()


def seed_of(secret: bytes, request: bytes, answer: bytes) -> bytes:
    """The seed of a look's noise: a keyed hash of the request and of the exact answer."""
    return hmac.new(secret, b"unpooled noise" + request + answer, hashlib.sha256).digest()


def add_noise(answer: Tree, sigma: float, seed: bytes) -> Tree:
    """The answer, every number moved by noise of standard deviation sigma that depends on the seed alone.

    Parameters
    ----------
    answer : Tree
        Arrays of floats and numbers; integers become floats.
    sigma : float
        Standard deviation of the noise, above 0.
    seed : bytes
        From `seed_of`.

    Returns
    -------
    noisy : Tree
        Of the same structure; every number is a multiple of sigma / 2^34.
    """
    exact = tree.flatten(answer)
    step = sigma / WIDTH
    whole = np.rint(exact / step)
    drawn = DiscreteGaussian(seed).draw(len(exact))
    return tree.unflatten(step * (whole + drawn), answer)


# ---- an answer with its noise ----


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
