"""The messages: NamedTuples of names, numbers and uint8 or uint64 arrays, so that each is a Tree.

Rows of an array are in an order of names that both sides know, so that names are not sent twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.errors import MaskingRefused
from unpooled.tree import message


@message("secure.Keys")
class Keys(NamedTuple):
    """Exchange 0, up: a node's public keys of this run."""

    exchange: np.ndarray  # (32,) uint8, X25519
    verify: np.ndarray  # (32,) uint8, Ed25519
    identity: np.ndarray  # uint8, the node's long-term public key in DER
    signature: np.ndarray  # uint8, by the long-term key over the run, the node's name and both keys


@message("secure.Envelopes")
class Envelopes(NamedTuple):
    """A node's mask key of sum t, and the shares of its two secrets, sealed for each neighbour."""

    t: int
    mask_key: np.ndarray  # (32,) uint8, X25519, not encrypted: the coordinator needs it if a peer is lost
    commitment: np.ndarray  # (32,) uint8, SHA-256 of the node's own mask seed
    sealed: np.ndarray  # (neighbours, 82) uint8, by neighbour


@message("secure.Begun")
class Begun(NamedTuple):
    """Exchange 1, up: this node's part of the tag key for every other node, and the envelopes of sum 1."""

    parts: np.ndarray  # (others, 48) uint8, by name in the roster
    envelopes: Envelopes


@message("secure.MaskRequest")
class MaskRequest(NamedTuple):
    """Exchange A, down, the same for all: which sum, over which nodes. Each node also gets its own letter."""

    t: int
    cohort: tuple[str, ...]  # names whose envelopes of sum t exist, sorted
    members: tuple[str, ...]  # names whose parts make up the tag key, sorted


@message("secure.Masked")
class Masked(NamedTuple):
    """Exchange A, up: the masked answer."""

    t: int
    limbs: np.ndarray  # (3, numbers + 2) uint64: the answer and its tag, masked
    layout: str  # shapes and dtypes of the answer
    signature: np.ndarray  # (64,) uint8, Ed25519 over what was asked of whom
    envelopes: Envelopes  # of sum t + 1


@message("secure.RevealRequest")
class RevealRequest(NamedTuple):
    """Exchange B, down, the same for all: who answered."""

    t: int
    answered: tuple[str, ...]  # sorted
    signatures: np.ndarray  # (answered, 64) uint8


@message("secure.Shares")
class Shares(NamedTuple):
    """Exchange B, up: one share for each neighbour in the cohort and for the node itself.

    For a peer that answered it is a share of the seed of its own mask, for a lost one a share of its mask key.
    """

    t: int
    shares: np.ndarray  # (peers in the cohort and itself, 33) uint8, by name


@message("secure.Total")
class Total(NamedTuple):
    """The total with its tag; every node may be sent it with the next question, and can check it."""

    t: int
    cohort: tuple[str, ...]
    members: tuple[str, ...]
    answered: tuple[str, ...]
    layout: str
    limbs: np.ndarray  # (3, numbers + 2) uint64


def to_array(content: bytes) -> np.ndarray:
    """Bytes as a uint8 array."""
    return np.frombuffer(content, np.uint8).copy()


def to_rows(rows: list[bytes], width: int) -> np.ndarray:
    """Pieces of bytes of equal length as a (rows, width) uint8 array."""
    return to_array(b"".join(rows)).reshape(len(rows), width)


def to_bytes(array: Any, what: str, size: int | None = None) -> bytes:
    """A uint8 array from a message as bytes; MaskingRefused for another type or size."""
    ok = isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.ndim == 1
    if not ok or (size is not None and len(array) != size):
        raise MaskingRefused(f"{what} should be {size if size is not None else 'some'} bytes: the message is damaged")
    return array.tobytes()


def from_rows(array: Any, what: str, shape: tuple[int, int]) -> list[bytes]:
    """The rows of a uint8 array from a message as bytes; MaskingRefused for another type or shape."""
    if not (isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.shape == shape):
        raise MaskingRefused(f"{what} should be {shape[0]} rows of {shape[1]} bytes: the message is damaged")
    return [row.tobytes() for row in array]


def to_limbs(array: Any, what: str, size: int) -> np.ndarray:
    """A (3, size) uint64 array from a message; MaskingRefused for another type or shape."""
    ok = isinstance(array, np.ndarray) and array.dtype.kind == "u" and array.dtype.itemsize == 8
    if not ok or array.shape != (3, size):
        raise MaskingRefused(f"{what} should be 3 x {size} limbs: the message is damaged")
    return array


def to_names(names: Any, what: str) -> tuple[str, ...]:
    """Names from a message; MaskingRefused unless they are strings, sorted and without repeats."""
    ok = isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)
    if not ok or sorted(set(names)) != list(names):
        raise MaskingRefused(f"{what} should be names in order, each once: the message is damaged")
    return tuple(names)


def to_count(t: Any) -> int:
    """The number of a sum from a message: 1, 2, 3, ..."""
    if not isinstance(t, int) or isinstance(t, bool) or t < 1:
        raise MaskingRefused("a sum is numbered from 1: the message is damaged")
    return t
