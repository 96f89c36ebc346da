"""Messages as bytes: a small JSON head, the structure of one Tree, then its arrays in C order. No pickle, no code.

Layout: 4 bytes of magic, 4 bytes of length, that many bytes of JSON, then each array. The overhead is a few hundred
bytes. Messages are not trusted: sizes are compared before memory is allocated, and only types that are already imported
are built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled import __version__, tree
from unpooled.arrays import NUMBERS, claimed_bytes, is_torch, received_bytes
from unpooled.tree import SchemaError, Tree

MAGIC = b"UNP1"
HEAD_BYTES = 64 * 2**20


class Parcel(NamedTuple):
    """An opened message: its head is read, its value is built on demand, when the types it names are imported."""

    head: dict[str, Any]
    structure: str
    specs: list[Any]  # [dtype, shape, from torch] of each array
    body: memoryview

    def value(self) -> Tree:
        """The Tree inside; SchemaError if it is damaged."""
        return tree.unpack(self.structure, list(_arrays(self.specs, self.body)), importing=False)


def pack(head: dict[str, Any], value: Tree = None) -> bytes:
    """A message as bytes: magic, the length of its JSON, the JSON, then the arrays."""
    structure, arrays = tree.pack(value)
    leaves = [a for a in tree.leaves(value) if not isinstance(a, int | float)]
    specs = [_spec(a, is_torch(leaf)) for a, leaf in zip(arrays, leaves, strict=True)]
    text = json.dumps({"unpooled": __version__, "head": head, "structure": structure, "arrays": specs}).encode()
    length = len(text).to_bytes(4, "big")
    numbers = [_little_endian(a).tobytes() for a in arrays]
    return b"".join([MAGIC, length, text, *numbers])


def _spec(a: np.ndarray, torch: bool) -> list[Any]:
    """Type, shape and origin of an array, as the JSON has them."""
    if a.dtype.kind not in NUMBERS:
        raise SchemaError(f"an array of {a.dtype} cannot be sent: send numbers")
    return [_little_endian(a).dtype.str, list(a.shape), torch]


def _little_endian(a: np.ndarray) -> np.ndarray:
    """The array in the byte order of the wire."""
    return a.astype(a.dtype.newbyteorder("<"), copy=False)


def unpack(message: bytes, limit: int = 2**31) -> Parcel:
    """Open a message; SchemaError for anything but a complete, well-formed message of this version."""
    if not isinstance(message, bytes) or message[:4] != MAGIC:
        raise SchemaError("the message was not made by unpooled")
    if len(message) > limit:
        raise SchemaError(f"the message has {len(message)} bytes, more than the limit of {limit}")
    length = int.from_bytes(message[4:8], "big")
    if length > min(HEAD_BYTES, len(message) - 8):
        raise SchemaError("the head of the message is cut off or too long")
    body = read_json(message[8 : 8 + length])
    if body.get("unpooled") != __version__:
        raise SchemaError(
            f"the other side runs unpooled {str(body.get('unpooled'))[:20]!r}, this one {__version__!r}: install the same version"
        )
    if not (isinstance(body.get("head"), dict) and isinstance(body.get("structure"), str)):
        raise SchemaError("the message has no head or no structure")
    specs = _checked(body.get("arrays"), len(message) - 8 - length)
    return Parcel(body["head"], body["structure"], specs, memoryview(message)[8 + length :])


def read_json(text: bytes) -> dict[str, Any]:
    """A JSON object, or SchemaError."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError("the head of the message is not JSON") from error
    if not isinstance(body, dict):
        raise SchemaError("the head of the message is not a JSON object")
    return body


def _checked(specs: Any, available: int) -> list[Any]:
    """The array descriptions, if they are well formed and their sizes add up to the bytes in the message."""
    try:
        claimed = sum(_nbytes(*spec) for spec in specs)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"an array of the message is badly described: {error}") from error
    if claimed != available:
        raise SchemaError(f"the message claims arrays of {claimed} bytes but holds {available}")
    return specs


def _nbytes(dtype: str, shape: list[int], torch: bool) -> int:
    """The bytes that an array claims to have."""
    if type(torch) is not bool:
        raise ValueError("torch flag must be a bool")
    return claimed_bytes(dtype, shape)


def _arrays(specs: list[Any], body: memoryview):
    """Yield the arrays of a message, copied so that they are aligned and writable."""
    start = 0
    for dtype, shape, torch in specs:
        size = _nbytes(dtype, shape, torch)
        array = np.frombuffer(body[start : start + size], dtype=dtype).reshape(shape).copy()
        start += size
        yield _to_torch(array) if torch else array


def _to_torch(array: np.ndarray) -> Any:
    """The array as a tensor; an error that says how to install torch."""
    try:
        import torch
    except ImportError as error:
        raise SchemaError("the message holds torch tensors: pip install 'unpooled[torch]'") from error
    return torch.from_numpy(array)


# ---- letters: bytes that a layer sends to a single node beside the question ----


def pack_letters(letters: Mapping[str, bytes]) -> bytes:
    """Letters by layer as bytes; empty if there are none."""
    if not letters:
        return b""
    return pack({}, {layer: np.frombuffer(letter, np.uint8) for layer, letter in letters.items()})


def unpack_letters(content: bytes, limit: int = 2**31) -> dict[str, bytes]:
    """The letters that `pack_letters` packed; SchemaError for anything else."""
    if not content:
        return {}
    letters = unpack(content, limit).value()
    if not isinstance(letters, dict):
        raise SchemaError("the letters of a message are not ordered by layer")
    try:
        return {str(layer): received_bytes(letter) for layer, letter in letters.items()}
    except ValueError as error:
        raise SchemaError(f"a letter of the message cannot be read: {error}") from error
