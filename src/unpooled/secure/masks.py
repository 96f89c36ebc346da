"""Masks: a 32-byte seed, used once, stretched by AES-256-CTR to uniform ring elements."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from unpooled.secure import ring


def stretch(seed: bytes, n_bytes: int) -> bytes:
    """The first bytes of the key stream of a seed; a seed must not be used for two purposes."""
    cipher = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16)))
    return cipher.encryptor().update(bytes(n_bytes))


def mask(seed: bytes, size: int) -> np.ndarray:
    """Limbs (3, size), uniform to whoever does not know the seed."""
    return np.frombuffer(stretch(seed, 8 * ring.LIMBS * size), ring.LIMB).reshape(ring.LIMBS, size)
