"""Tags: two more numbers in a masked answer, by which every node can check the total that the coordinator sends it.

The nodes of a run share a key that the coordinator does not have. In sum t a node's tag is <r, x> + s modulo a prime: x
is its answer as signed integers of the ring, r a vector of 128-bit weights that all nodes know, s a pad that all nodes
can compute for each name. Tags add up, so the sum of tags must be <r, total> plus the pads of those who answered.

Whoever alters the total without the key passes with probability 2^-128. The prime is above 2^256, so no change of the
total is a multiple of it. The pads keep <r, total> hidden; without them, a total and its tag could be doubled together.
Sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.secure import ring
from unpooled.secure.keys import derive
from unpooled.secure.masks import stretch
from unpooled.secure.shamir import PRIME

COORDINATES = 2  # ring elements per tag
_HALF = 2**128
_WEIGHT_BYTES = 16
_CHUNK = 2**16  # numbers at a time: sums of 2^16 products of two 16-bit digits are exact in float64


class TagKey(NamedTuple):
    """The key for the tags of one sum."""

    key: bytes  # shared by the nodes of the run
    digest: bytes  # of the question and the nodes it was asked of: a tag fits one sum only

    def weights(self, size: int) -> bytes:
        """The weights r: 16 bytes per number."""
        return stretch(derive(self.key, "weights", self.digest), _WEIGHT_BYTES * size)

    def pad(self, name: str) -> int:
        """The pad s of one node."""
        return int.from_bytes(derive(self.key, "pad", self.digest, name), "big")


def append_tag(limbs: np.ndarray, key: TagKey, name: str) -> np.ndarray:
    """The answer (3, m) followed by its tag: (3, m + 2)."""
    tag = (_inner(key.weights(limbs.shape[1]), limbs) + key.pad(name)) % PRIME
    high, low = divmod(tag, _HALF)
    return np.concatenate([limbs, ring.from_integer(low), ring.from_integer(high)], axis=1)


def is_true_total(limbs: np.ndarray, key: TagKey, answered: Sequence[str]) -> bool:
    """Whether a total (3, m + 2) is the sum of what these nodes sent."""
    total = limbs[:, :-2]
    low = limbs[:, -2:-1]
    high = limbs[:, -1:]
    tag = ring.to_integer(low) + _HALF * ring.to_integer(high)
    expected = _inner(key.weights(total.shape[1]), total) + sum(key.pad(name) for name in answered)
    return (tag - expected) % PRIME == 0


def _inner(weights: bytes, limbs: np.ndarray) -> int:
    """<r, x>: the sum of weight times signed number, as an exact integer."""
    factors = np.frombuffer(weights, "<u2").reshape(-1, 8)
    size = limbs.shape[1]
    return sum(_inner_chunk(factors[i : i + _CHUNK], limbs[:, i : i + _CHUNK]) for i in range(0, size, _CHUNK))


def _inner_chunk(factors: np.ndarray, limbs: np.ndarray) -> int:
    """The same for one chunk, by 16-bit digits: one small matrix product of integers below 2^53."""
    size = limbs.shape[1]
    digits = np.ascontiguousarray(limbs, ring.LIMB).view("<u2").reshape(ring.LIMBS, size, 4)
    columns = np.concatenate([*digits, ring.is_negative(limbs)[:, None]], axis=1)  # (size, 13)
    products = factors.T.astype(np.float64) @ columns.astype(np.float64)  # (8, 13)
    total = 0
    for i, row in enumerate(products.astype(np.int64).tolist()):
        unsigned = sum(entry << (16 * j) for j, entry in enumerate(row[:12]))
        total += (unsigned - (row[12] << 192)) << (16 * i)
    return total
