"""Envelopes: shares of a node's two secrets of one sum, encrypted for each neighbour with AES-256-GCM. Sends nothing.

Node i has two secrets in sum t: the mask key, from which it and each neighbour derive a mask that cancels between them,
and the seed of a mask of its own. Each envelope has its own key and always the same content, so its nonce may be fixed.
"""

from __future__ import annotations

from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.errors import MaskingRefused
from unpooled.secure import shamir
from unpooled.secure.keys import KEY_BYTES, agree, canonical, derive, digest, exchange_key, public_bytes
from unpooled.secure.shamir import SHARE_BYTES

_TAG_BYTES = 16
SEALED_BYTES = 2 * SHARE_BYTES + _TAG_BYTES
PART_BYTES = 32
SEALED_PART_BYTES = PART_BYTES + _TAG_BYTES
_NONCE = bytes(12)


class SumSecrets(NamedTuple):
    """A node's two secrets in one sum."""

    mask_key: bytes  # X25519 private key
    own_seed: bytes  # seed of the node's own mask

    @property
    def public_key(self) -> bytes:
        """The public half of the mask key."""
        return public_bytes(exchange_key(self.mask_key))

    @property
    def commitment(self) -> bytes:
        """A digest of the seed, by which the coordinator checks a seed that it recovered."""
        return digest("own seed", self.own_seed)


def sum_secrets(root: bytes, t: int) -> SumSecrets:
    """The secrets of sum t, derived from the node's root secret of the run."""
    return SumSecrets(derive(root, "mask key", t), derive(root, "own seed", t))


def split_secrets(secrets: SumSecrets, root: bytes, t: int, threshold: int, points: list[int]) -> list[bytes]:
    """For each holder's point a share of each secret, 66 bytes together."""
    of_key = shamir.split(secrets.mask_key, threshold, points, derive(root, "shares of mask key", t))
    of_seed = shamir.split(secrets.own_seed, threshold, points, derive(root, "shares of own seed", t))
    return [a.to_bytes(SHARE_BYTES, "big") + b.to_bytes(SHARE_BYTES, "big") for a, b in zip(of_key, of_seed)]


def seal(channel: bytes, sender: str, receiver: str, t: int, mask_key: bytes, shares: bytes) -> bytes:
    """The shares as 82 bytes that only the receiver can open.

    Parameters
    ----------
    channel : bytes
        The secret that sender and receiver share in this run.
    sender, receiver : str
        Names of the two nodes.
    t : int
        The number of the sum.
    mask_key : bytes
        The sender's public mask key of this sum, which the envelope authenticates.
    shares : bytes
        What is sealed.
    """
    key = derive(channel, "envelope", sender, receiver, t)
    return AESGCM(key).encrypt(_NONCE, shares, canonical(sender, receiver, t, mask_key))


def open_sealed(channel: bytes, sender: str, receiver: str, t: int, mask_key: bytes, sealed: bytes) -> bytes:
    """The shares in an envelope; MaskingRefused if the sender did not seal it for this sum.

    Parameters are those of `seal`, with the envelope in place of the shares.
    """
    key = derive(channel, "envelope", sender, receiver, t)
    try:
        return AESGCM(key).decrypt(_NONCE, sealed, canonical(sender, receiver, t, mask_key))
    except InvalidTag as error:
        raise MaskingRefused(f"the envelope from {sender} for SUM {t} is forged or of another sum") from error


def seal_part(channel: bytes, sender: str, receiver: str, part: bytes) -> bytes:
    """A node's part of the tag key, encrypted for one other node."""
    return AESGCM(derive(channel, "part", sender, receiver)).encrypt(_NONCE, part, None)


def open_part(channel: bytes, sender: str, receiver: str, sealed: bytes) -> bytes:
    """The part of the tag key that a node sealed; MaskingRefused if it is forged."""
    try:
        return AESGCM(derive(channel, "part", sender, receiver)).decrypt(_NONCE, sealed, None)
    except InvalidTag as error:
        raise MaskingRefused(f"the part of the tag key from {sender} is forged") from error


def pair_seed(mask_key: bytes, peer_public: bytes, name: str, peer: str, t: int) -> bytes:
    """The seed of the mask that two nodes share in sum t; both compute the same."""
    shared = agree(exchange_key(mask_key), peer_public, peer)
    return derive(shared, "pair mask", sorted((name, peer)), t)


# ---- letters: what the coordinator sends to each node with the question ----

_ROW = KEY_BYTES + SEALED_BYTES


def write_letter(parts: list[bytes], envelopes: list[tuple[bytes, bytes]]) -> bytes:
    """The parts of the tag key (none once the node has them), then (mask key, envelope) of each neighbour, as bytes."""
    rows = [key + sealed for key, sealed in envelopes]
    return len(parts).to_bytes(4, "big") + b"".join(parts) + b"".join(rows)


def read_letter(letter: bytes, n_envelopes: int) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """(parts, envelopes) of a letter; MaskingRefused if its length is wrong."""
    n_parts = int.from_bytes(letter[:4], "big")
    start = 4 + n_parts * SEALED_PART_BYTES
    if len(letter) != start + n_envelopes * _ROW:
        raise MaskingRefused(
            f"the letter has {len(letter)} bytes, which {n_envelopes} envelopes do not fill: it is cut or damaged"
        )
    parts = [letter[i : i + SEALED_PART_BYTES] for i in range(4, start, SEALED_PART_BYTES)]
    rows = [letter[i : i + _ROW] for i in range(start, len(letter), _ROW)]
    return parts, [(row[:KEY_BYTES], row[KEY_BYTES:]) for row in rows]
