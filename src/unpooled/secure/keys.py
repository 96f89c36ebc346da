"""Keys: every secret that a node uses in a run is derived by HKDF from the secret in its vault. Sends nothing.

There are three kinds of key pairs: the node's long-term key (ECDSA, `node.key`), which peers may pin by its
fingerprint; one X25519 and one Ed25519 pair per run, signed by the long-term key; and one X25519 pair per sum, for its
masks.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from unpooled.errors import MaskingRefused

KEY_BYTES = 32
SIGNATURE_BYTES = 64  # of Ed25519
_SALT = b"unpooled masked sum 1"

Part = bytes | str | int | Sequence[Any]  # a sequence holds parts again


def canonical(*parts: Part) -> bytes:
    """The parts as bytes, such that different parts have different bytes.

    >>> canonical("ab", "c") == canonical("a", "bc")
    False
    """
    return b"".join(_canonical(part) for part in parts)


def _canonical(part: Part) -> bytes:
    """One part as bytes: its kind, its length and its content."""
    if isinstance(part, bytes):
        kind, content = b"b", part
    elif isinstance(part, str):
        kind, content = b"s", part.encode()
    elif isinstance(part, int):
        kind, content = b"i", str(part).encode()
    else:
        kind, content = b"l", canonical(*part)
    return kind + len(content).to_bytes(8, "big") + content


def digest(*parts: Part) -> bytes:
    """SHA-256 of the parts."""
    return hashlib.sha256(canonical(*parts)).digest()


def question_digest(asked: bytes) -> bytes:
    """Under which a node keeps which question a masked sum was of, given the digest of what was asked."""
    return digest("question", asked)


def derive(key: bytes, *purpose: Part) -> bytes:
    """32 bytes derived from a key for one purpose: HKDF-SHA256 (RFC 5869)."""
    extracted = hmac.digest(_SALT, key, "sha256")
    return hmac.digest(extracted, canonical(*purpose) + b"\x01", "sha256")


# ---- key pairs of a run and of a sum ----


def exchange_key(seed: bytes) -> X25519PrivateKey:
    """The X25519 key of a 32-byte seed."""
    return X25519PrivateKey.from_private_bytes(seed)


def signing_key(seed: bytes) -> Ed25519PrivateKey:
    """The Ed25519 key of a 32-byte seed."""
    return Ed25519PrivateKey.from_private_bytes(seed)


def public_bytes(key: X25519PrivateKey | Ed25519PrivateKey) -> bytes:
    """The public half of a key, 32 bytes."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def agree(key: X25519PrivateKey, peer: bytes, name: str) -> bytes:
    """The secret that two key pairs share.

    MaskingRefused for keys of low order, with which anybody could compute it.
    """
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise MaskingRefused(
            f"the key sent for {name} is not a usable X25519 key: the roster or a letter is forged"
        ) from error


def is_signed(signature: bytes, content: bytes, verify_key: bytes) -> bool:
    """Whether this key made this Ed25519 signature of the content."""
    try:
        Ed25519PublicKey.from_public_bytes(verify_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


# ---- a node's long-term key pair ----


def identity_from(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """A P-384 key pair derived from a vault secret, for nodes without a `node.key` (clients in one process)."""
    wide = derive(secret, "identity", 1) + derive(secret, "identity", 2)
    return ec.derive_private_key(int.from_bytes(wide, "big") % 2**383 + 1, ec.SECP384R1())


def identity_bytes(identity: ec.EllipticCurvePrivateKey) -> bytes:
    """The public half of a node's long-term key, in DER."""
    return identity.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def fingerprint(identity_public: bytes) -> str:
    """The fingerprint of a public key in DER, which people compare and pin: "SHA256:" and 43 letters, as in OpenSSH.

    >>> fingerprint(b"a public key")[:14]
    'SHA256:C3NI+gO'
    """
    return "SHA256:" + base64.b64encode(hashlib.sha256(identity_public).digest()).decode().rstrip("=")


def sign_identity(identity: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    """Sign with a node's long-term key: ECDSA with SHA-256."""
    return identity.sign(content, ec.ECDSA(hashes.SHA256()))


@lru_cache(maxsize=1024)
def is_signed_by_identity(signature: bytes, content: bytes, identity_public: bytes) -> bool:
    """Whether this long-term key signed the content; cached, since nodes in one process check the same ones."""
    try:
        key = load_der_public_key(identity_public)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True
