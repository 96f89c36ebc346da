"""Any answer as bytes: the change of every array since the last answer, and what both ends remember then.

Sends nothing. An answer that is a dict is remembered entry by entry: a new entry is sent whole, the others as changes.

Format: one byte that says whether the message is a change (followed by a checksum of the memory it changes), then the
number of entries. Each entry has its name and layout, unless both ends know them, and for each array its length and
content. Integers and small arrays are sent unchanged; where they equal the last ones, nothing is sent.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import claimed_bytes
from unpooled.layers.compression.coding import expect, inflated, length, read_length
from unpooled.layers.compression.quantisers import Dither
from unpooled.tree import Tree
from unpooled.tree import message as registered

PATIENCE = 3  # an entry is forgotten after this many answers without it
SMALL = 16  # arrays of fewer numbers are sent unchanged
FINE = Dither(levels=127)  # for the first message of an array
RAW_DEFLATE = -15  # zlib's code for deflate without a header
MAX_LAYOUT_BYTES = 2**22  # largest name and layout of an entry
MAX_ARRAY_BYTES = 2**60  # what NumPy can describe; the layer's `max_bytes=` is the limit that users set
CHANGE, AFRESH = 0, 1  # first byte of a message: a change of the memory, or independent of it
SIGNED, COUNTS = 0, 1  # first byte of a quantised array: any sign, or no number below 0


@registered("compressed.Part")
class EntryMemory(NamedTuple):
    """What both ends remember of one entry."""

    layout: str  # structure and shapes
    arrays: list[np.ndarray]
    missed: int = 0  # answers since the last one that had this entry


class Coding(NamedTuple):
    """What both ends use to write or read one message."""

    quantiser: Any
    alpha: float | None  # step of the memory; None for no memory
    rng: np.random.Generator  # in the same state at both ends


Memory = dict[str, EntryMemory]


# ---- writing ----


def write(answer: Tree, memory: Memory | None, coding: Coding) -> bytes:
    """The message for an answer: its change against `memory`, or the whole answer where there is none."""
    entries = answer if isinstance(answer, dict) else {"": answer}
    known = memory or {}
    out = [_header(memory), length(len(entries) + 1 if isinstance(answer, dict) else 0)]
    dictionary = _dictionary(known)
    for name, entry in sorted(entries.items()):
        layout = _layout(entry)
        old = known.get(name)
        out.append(_entry_header(name, layout, known, dictionary))
        dictionary = f"{name}\n{layout}"
        for i, leaf in enumerate(tree.leaves(entry)):
            content = _array_content(leaf, _array_memory(old, layout, i, leaf), coding)
            out.append(_with_length(content))
    return b"".join(out)


def _header(memory: Memory | None) -> bytes:
    """The first bytes of a message: a change of a memory with this checksum, or independent of any memory."""
    return bytes([AFRESH]) if memory is None else struct.pack("<BI", CHANGE, checksum(memory))


def _entry_header(name: str, layout: str, known: Memory, dictionary: str) -> bytes:
    """The number of a known entry with this layout, counted from 1; or 0 followed by its name and layout."""
    if name in known and known[name].layout == layout:
        return length(1 + sorted(known).index(name))
    return length(0) + _with_length(_deflated(f"{name}\n{layout}", dictionary))


def _array_content(leaf: np.ndarray, old: np.ndarray | None, coding: Coding) -> bytes:
    """One array as bytes: its quantised change against `old`, or unchanged if it is small or not floating."""
    if not _is_quantised(leaf):
        return _unchanged_content(leaf, old)
    change = np.asarray(leaf - (0.0 if old is None else old), np.float64)
    if not np.isfinite(change).all():
        raise tree.SchemaError("the answer holds numbers that are not finite (NaN or infinite)")
    sign = bytes([COUNTS if (leaf >= 0).all() else SIGNED])
    return sign + _quantiser_for(old, coding).encode(change.ravel(), coding.rng).tobytes()


def _unchanged_content(leaf: np.ndarray, old: np.ndarray | None) -> bytes:
    """The array as it is; no bytes if it equals the last one (zeros at first)."""
    last = np.zeros_like(leaf) if old is None else old
    return b"" if np.array_equal(last, leaf) else leaf.tobytes()


def _quantiser_for(old: np.ndarray | None, coding: Coding) -> Any:
    """The quantiser of an array: a fine one for its first message, which is not a change yet."""
    return FINE if old is None and coding.alpha is not None else coding.quantiser


# ---- reading: any bytes may arrive; sizes are compared before memory is allocated ----


class _Reader:
    """Reads bytes from the front; ValueError where too few are left."""

    def __init__(self, content: bytes):
        """Read `content` from its first byte on."""
        self.content = content
        self.at = 0

    def take(self, n: int) -> bytes:
        """The next `n` bytes."""
        if n > len(self.content) - self.at:
            raise ValueError(f"it is cut off after {len(self.content)} bytes")
        self.at += n
        return self.content[self.at - n : self.at]

    def length(self) -> int:
        """The next length."""
        n, self.at = read_length(self.content, self.at)
        return n

    def with_length(self) -> bytes:
        """The next piece, whose length comes first."""
        return self.take(self.length())

    def end(self) -> None:
        """Raise ValueError if bytes are left over."""
        if self.at < len(self.content):
            raise ValueError(f"{len(self.content) - self.at} bytes are left over")


def read(content: bytes, memory: Memory | None, coding: Coding, limit: float = math.inf) -> tuple[Tree, Memory]:
    """(the answer, the memory after it); both ends run this, so their memories have the same bits.

    Raises SchemaError for bytes that `write` never writes, and for an answer of more than `limit` bytes of numbers.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are refused
            return _read(_Reader(content), memory, coding, limit)
    except (ValueError, RecursionError) as error:
        raise tree.SchemaError(str(error)) from error


def _read(reader: _Reader, memory: Memory | None, coding: Coding, limit: float) -> tuple[Tree, Memory]:
    """`read` without the handling of errors."""
    known = _read_header(reader, memory)
    count = reader.length()  # 0 for an answer that is not a dict, else one more than its entries
    n_entries = 1 if count == 0 else count - 1
    dictionary = _dictionary(known)
    answer: dict[str, Tree] = {}
    new: Memory = {}
    for _ in range(n_entries):
        name, layout = _read_entry_header(reader, known, dictionary)
        if name in answer or (count == 0 and name):
            raise ValueError(f"the entry {name[:40]!r} has no place in it")
        dictionary = f"{name}\n{layout}"
        template = _template(layout)
        limit -= tree.size(template)
        if limit < 0:
            raise ValueError("it claims more numbers than max_bytes= of Compressed allows")
        answer[name], new[name] = _read_entry(reader, layout, template, known.get(name), coding)
    reader.end()
    return (answer if count else answer[""]), new | _missed(known, new)


def _read_entry(
    reader: _Reader, layout: str, template: Tree, old: EntryMemory | None, coding: Coding
) -> tuple[Tree, EntryMemory]:
    """(one entry of the answer, its memory)."""
    values, memories = [], []
    for i, like in enumerate(tree.leaves(template)):
        last = _array_memory(old, layout, i, like)
        value, memory = _read_array(reader.with_length(), like, last, coding)
        values.append(value)
        memories.append(memory)
    return tree.rebuild(template, values), EntryMemory(layout, memories)


def _missed(known: Memory, new: Memory) -> Memory:
    """The entries that this answer did not have, except those that were missing for long."""
    absent = {name: old._replace(missed=old.missed + 1) for name, old in known.items() if name not in new}
    return {name: old for name, old in absent.items() if old.missed <= PATIENCE}


def _read_header(reader: _Reader, memory: Memory | None) -> Memory:
    """The memory that the message is a change of; empty if it is independent of any."""
    start = reader.take(1)[0]
    if start == AFRESH:
        return {}  # whatever this end still remembers, the other end does not
    if start != CHANGE:
        raise ValueError(f"it begins with {start}")
    if memory is None or struct.unpack("<I", reader.take(4))[0] != checksum(memory):
        raise ValueError("it is a change of something this server has not seen")
    return memory


def _read_entry_header(reader: _Reader, known: Memory, dictionary: str) -> tuple[str, str]:
    """(name, layout) of an entry."""
    place = reader.length()
    if place > len(known):
        raise ValueError(f"it refers to entry {place} of {len(known)}")
    if place:
        name = sorted(known)[place - 1]
        return name, known[name].layout
    name, _, layout = _inflated(reader.with_length(), dictionary).partition("\n")
    return name, layout


def _read_array(body: bytes, like: np.ndarray, old: np.ndarray | None, coding: Coding) -> tuple[np.ndarray, np.ndarray]:
    """(value, memory after it) of one array shaped `like`; ValueError for numbers that are not finite."""
    read_content = _read_quantised if _is_quantised(like) else _read_unchanged
    value, memory = read_content(body, like, old, coding)
    if value.dtype.kind == "f" and not (np.isfinite(value).all() and np.isfinite(memory).all()):
        raise ValueError("it holds numbers that are not finite (NaN or infinite)")
    return value, memory


def _read_unchanged(
    body: bytes, like: np.ndarray, old: np.ndarray | None, coding: Coding
) -> tuple[np.ndarray, np.ndarray]:
    """(value, memory) of an array that was sent as it is; both are the same."""
    if body:
        expect(len(body), like.size * like.dtype.itemsize, like.size)
        value = np.frombuffer(body, like.dtype).reshape(like.shape)
    else:
        value = np.zeros(like.shape, like.dtype) if old is None else old
    return value, value


def _read_quantised(
    body: bytes, like: np.ndarray, old: np.ndarray | None, coding: Coding
) -> tuple[np.ndarray, np.ndarray]:
    """(value, memory) of an array that was sent as a quantised change of `old`."""
    if not body or body[0] not in (SIGNED, COUNTS):
        raise ValueError("an array does not say whether it holds counts")
    last = np.zeros(like.shape) if old is None else old
    sent = np.frombuffer(body[1:], np.uint8)
    change = _quantiser_for(old, coding).decode(sent, like.size, coding.rng).reshape(like.shape)
    alpha = 1.0 if old is None else coding.alpha or 1.0
    value = last + change
    return (np.maximum(value, 0.0) if body[0] == COUNTS else value), last + alpha * change


# ---- layouts, names, lengths ----


def _layout(entry: Tree) -> str:
    """Structure, dtypes and shapes of an entry, as text."""
    structure, arrays = tree.pack(entry)
    return "\n".join([structure, *(f"{a.dtype.str}:{','.join(map(str, a.shape))}" for a in arrays)])


@lru_cache(maxsize=256)
def _template(layout: str) -> Tree:
    """Arrays in the structure and shapes of a layout that take up no memory."""
    structure, *arrays = layout.split("\n")
    template = tree.unpack(structure, [_empty_array(*text.partition(":")[::2]) for text in arrays], importing=False)
    if not all(isinstance(leaf, np.ndarray) for leaf in tree.leaves(template)):
        raise ValueError("a number stands where an array belongs")
    return template


def _empty_array(dtype: str, dims: str) -> np.ndarray:
    """An array of zeros of this dtype and shape, such as "3,4", that takes up no memory."""
    sizes = dims.split(",") if dims else []
    shape = [int(n) for n in sizes if n.isdecimal() and len(n) < 20]
    if len(shape) < len(sizes) or claimed_bytes(dtype, shape) > MAX_ARRAY_BYTES:
        raise ValueError(f"an array of shape {dims[:40]!r} is claimed")
    return np.broadcast_to(np.zeros((), dtype), shape)


def _dictionary(known: Memory) -> str:
    """A name and layout that both ends know, if any, as preset dictionary: deflate then writes only the differences."""
    return next((f"{name}\n{entry.layout}" for name, entry in sorted(known.items())), "")


def _deflated(text: str, dictionary: str) -> bytes:
    """Text as raw deflate data, with a preset dictionary."""
    packer = zlib.compressobj(9, zlib.DEFLATED, RAW_DEFLATE, zdict=dictionary.encode())
    return packer.compress(text.encode()) + packer.flush()


def _inflated(packed: bytes, dictionary: str) -> str:
    """The text in raw deflate data; ValueError if it is too long or not text."""
    try:
        return inflated(packed, MAX_LAYOUT_BYTES, dictionary.encode()).decode()
    except UnicodeDecodeError as error:
        raise ValueError("a name is not a string") from error


def _array_memory(old: EntryMemory | None, layout: str, i: int, leaf: np.ndarray) -> np.ndarray | None:
    """The memory of array `i` of an entry, if its structure, shape and kind of number are still the same."""
    if old is None or old.layout.partition("\n")[0] != layout.partition("\n")[0]:
        return None
    value = old.arrays[i]
    return value if value.shape == leaf.shape and value.dtype.kind == leaf.dtype.kind else None


def _is_quantised(leaf: np.ndarray) -> bool:
    """Whether an array is quantised: floating and not small."""
    return leaf.dtype.kind == "f" and leaf.size >= SMALL


def _with_length(content: bytes) -> bytes:
    """Bytes preceded by their length."""
    return length(len(content)) + content


def checksum(memory: Memory) -> int:
    """CRC-32 of all remembered arrays."""
    crc = 0
    for value in _values(memory):
        crc = zlib.crc32(np.asarray(value, order="C").tobytes(), crc)
    return crc


def _values(memory: Memory) -> Iterator[np.ndarray]:
    """All remembered arrays, by name of their entry."""
    return (array for _, entry in sorted(memory.items()) for array in entry.arrays)
