"""Masks: a 32-byte seed, used once, expanded by AES-256-CTR to uniform ring elements. Sends nothing."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from unpooled.secure import ring


def stretch(seed: bytes, n_bytes: int) -> bytes:
    """The first bytes of the AES-CTR key stream of a seed; a seed must have one purpose only."""
    cipher = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16)))
    return cipher.encryptor().update(bytes(n_bytes))


def mask(seed: bytes, size: int) -> np.ndarray:
    """Limbs (3, size) that look uniform to whoever does not know the seed."""
    return np.frombuffer(stretch(seed, 8 * ring.LIMBS * size), ring.LIMB).reshape(ring.LIMBS, size)
