"""An answer as bytes, for `Compressed`: what changed since the last one, array by array, and what both ends then remember. Sends nothing.

An answer that is a dict is remembered entry by entry: one that was not there lately goes whole, the others go as changes.

Bytes: what it is a change of (a checksum of the memory), the number of entries; for each its name and make unless they are known, then for
each array its length and content. Integers and small arrays go as they are (with a grid, as float32), or not at all where nothing changed.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import claimed_bytes
from unpooled.layers.compression.coding import expect, inflated, length, read_length
from unpooled.layers.compression.quantisers import Dither, Grid
from unpooled.tree import Tree, message

PATIENCE = 3  # answers without it after which an entry is forgotten
SMALL = 16  # numbers; a smaller array is sent as it is
FINE = Dither(levels=127)  # for what is sent first
RAW = -15  # deflate without a header
LONGEST = 2**22  # bytes of a name and make
MOST = 2**60  # bytes of an array that NumPy can describe; how many are taken is for max_bytes= to say
CHANGE, AFRESH = 0, 1  # the first byte: a change of the memory, or not
NUMBERS, COUNTS = 0, 1  # the first byte of a quantised array: of any sign, or of none below 0, so that none may arrive


@message("compressed.Leaf")
class Leaf(NamedTuple):
    """What both ends remember of an array."""

    value: np.ndarray
    steps: np.ndarray  # (columns,) of its grid; none where there is no grid


@message("compressed.Part")
class Part(NamedTuple):
    """What both ends remember of an entry."""

    make: str  # structure and shapes
    leaves: list[Leaf]
    missed: int = 0  # answers since it was last there


@message("compressed.How")
class How(NamedTuple):
    quantiser: Any
    alpha: float | None  # the memory's step; none: no memory
    rng: np.random.Generator  # both ends draw alike
    draws: Callable[[str, tuple[int, ...]], np.ndarray]  # (array's name, shape) -> its own, the same in every round


Memory = dict[str, Part]


# ---- writing ----


def write(up: Tree, held: Memory | None, how: How) -> bytes:
    entries = up if isinstance(up, dict) else {"": up}
    known = held or {}
    texts = _texts(known)
    out = [struct.pack("<BI", CHANGE, checksum(known)) if held is not None else bytes([AFRESH])]
    out.append(length(len(entries) + 1 if isinstance(up, dict) else 0))
    for name, entry in sorted(entries.items()):
        make, old = _make(entry), known.get(name)
        if old is not None and old.make == make:
            out.append(length(1 + sorted(known).index(name)))
        else:
            out += [length(0), _text(_deflated(f"{name}\n{make}", texts))]
        texts = [f"{name}\n{make}"]
        for i, leaf in enumerate(tree.leaves(entry)):
            out.append(_text(_content(leaf, _remembered(old, make, i, leaf), how, f"{name}, {i}")))
    return b"".join(out)


def _content(leaf: np.ndarray, old: Leaf | None, how: How, name: str) -> bytes:
    if not _quantised(leaf):
        before = np.zeros_like(leaf) if old is None else old.value
        return b"" if np.array_equal(before, leaf) else leaf.astype(_sent_as(leaf, how)).tobytes()
    change = np.asarray(leaf - (0.0 if old is None else old.value), np.float64)
    if not np.isfinite(change).all():
        raise tree.SchemaError("the answer holds numbers that are not finite")
    sign = bytes([COUNTS if (leaf >= 0).all() else NUMBERS])
    if isinstance(how.quantiser, Grid) and how.alpha is not None:
        return sign + _on_grid(change, old, how, name)
    return sign + _rounder(old, how).encode(change.ravel(), how.rng).tobytes()


def _sent_as(leaf: np.ndarray, how: How) -> Any:
    """A small array's numbers as they are; beside a grid four bytes are plenty."""
    return np.dtype("<f4") if leaf.dtype.kind == "f" and isinstance(how.quantiser, Grid) else leaf.dtype


def _on_grid(change: np.ndarray, old: Leaf | None, how: How, name: str) -> bytes:
    laid = how.quantiser.lay(change) if old is None or not len(old.steps) else b""
    steps = how.quantiser.steps(laid) if len(laid) else old.steps if old is not None else np.zeros(0)
    if not len(steps):
        return b""
    return bytes(laid) + how.quantiser.moves(change, steps, how.draws(name, change.shape)).tobytes()


def _rounder(old: Leaf | None, how: How) -> Any:
    return FINE if old is None and how.alpha is not None else how.quantiser


# ---- reading: whatever arrives is taken for hostile, sizes are compared before memory is touched ----


class _Reader:
    """Bytes taken from the front; ValueError where there are too few."""

    def __init__(self, content: bytes):
        self.content, self.at = content, 0

    def take(self, n: int) -> bytes:
        if n > len(self.content) - self.at:
            raise ValueError(f"it is cut off after {len(self.content)} bytes")
        self.at += n
        return self.content[self.at - n : self.at]

    def length(self) -> int:
        n, self.at = read_length(self.content, self.at)
        return n

    def text(self) -> bytes:
        return self.take(self.length())

    def end(self) -> None:
        if self.at < len(self.content):
            raise ValueError(f"{len(self.content) - self.at} bytes are left over")


def read(content: bytes, held: Memory | None, how: How, limit: float = math.inf) -> tuple[Tree, Memory]:
    """(the answer that was meant, the memory after it); both ends run this, so their memories have the same bits.

    SchemaError for bytes that `write` never gives, and for an answer that claims more than `limit` bytes of numbers.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            return _read(_Reader(content), held, how, limit)
    except (ValueError, RecursionError) as error:
        raise tree.SchemaError(str(error)) from error


def _read(reader: _Reader, held: Memory | None, how: How, limit: float) -> tuple[Tree, Memory]:
    known = _read_base(reader, held)
    count, texts = reader.length(), _texts(known)
    meant, memory = {}, {}
    for _ in range(max(count - 1, 1) if count != 1 else 0):
        name, make = _read_name(reader, known, texts)
        if name in meant or (count == 0 and name):
            raise ValueError(f"the entry {name[:40]!r} has no place in it")
        texts, template = [f"{name}\n{make}"], _template(make)
        likes = tree.leaves(template)
        limit -= sum(like.nbytes for like in likes)
        if limit < 0:
            raise ValueError("it claims more numbers than max_bytes= of Compressed allows")
        olds = [_remembered(known.get(name), make, i, like) for i, like in enumerate(likes)]
        found = [_read_leaf(reader.text(), like, old, how) for like, old in zip(likes, olds)]
        meant[name] = tree.rebuild(template, [value for value, _ in found])
        memory[name] = Part(make, [leaf for _, leaf in found])
    reader.end()
    missed = {name: part._replace(missed=part.missed + 1) for name, part in known.items() if name not in memory}
    return (meant if count else meant[""]), memory | {n: part for n, part in missed.items() if part.missed <= PATIENCE}


def _read_base(reader: _Reader, held: Memory | None) -> Memory:
    """What the answer is a change of."""
    start = reader.take(1)[0]
    if start == AFRESH:
        return {}  # whatever this end still remembers, the other end does not
    if start != CHANGE:
        raise ValueError(f"it begins with {start}")
    if held is None or struct.unpack("<I", reader.take(4))[0] != checksum(held):
        raise ValueError("it is a change of something this server has not seen")
    return held


def _read_name(reader: _Reader, known: Memory, texts: list[str]) -> tuple[str, str]:
    """(name, make) of an entry."""
    place = reader.length()
    if place > len(known):
        raise ValueError(f"it speaks of entry {place} of {len(known)}")
    if place:
        name = sorted(known)[place - 1]
        return name, known[name].make
    name, _, make = _inflated(reader.text(), texts).partition("\n")
    return name, make


def _read_leaf(body: bytes, like: np.ndarray, old: Leaf | None, how: How) -> tuple[np.ndarray, Leaf]:
    value, leaf = (_read_quantised if _quantised(like) else _read_plain)(body, like, old, how)
    if value.dtype.kind == "f" and not (np.isfinite(value).all() and np.isfinite(leaf.value).all()):
        raise ValueError("it holds numbers that are not finite")
    return value, leaf


def _read_plain(body: bytes, like: np.ndarray, old: Leaf | None, how: How) -> tuple[np.ndarray, Leaf]:
    before = np.zeros(like.shape, like.dtype) if old is None else old.value
    dtype = np.dtype(_sent_as(like, how))
    if body:
        expect(len(body), like.size * dtype.itemsize, like.size)
    value = np.frombuffer(body, dtype).reshape(like.shape).astype(like.dtype) if body else before
    return value, Leaf(value, np.zeros(0))


def _read_quantised(body: bytes, like: np.ndarray, old: Leaf | None, how: How) -> tuple[np.ndarray, Leaf]:
    if not body or body[0] not in (NUMBERS, COUNTS):
        raise ValueError("an array does not say whether it holds counts")
    before, sent = np.zeros(like.shape) if old is None else old.value, np.frombuffer(body[1:], np.uint8)
    if isinstance(how.quantiser, Grid) and how.alpha is not None:
        steps, sent = _grid_of(sent, like, old, how)
        change, alpha = how.quantiser.moved(sent, like.shape, steps) if len(steps) else np.zeros(like.shape), 1.0
    else:
        change = _rounder(old, how).decode(sent, like.size, how.rng).reshape(like.shape)
        steps, alpha = np.zeros(0), 1.0 if old is None else how.alpha or 1.0
    value = before + change
    return (np.maximum(value, 0.0) if body[0] == COUNTS else value), Leaf(before + alpha * change, steps)


def _grid_of(sent: np.ndarray, like: np.ndarray, old: Leaf | None, how: How) -> tuple[np.ndarray, np.ndarray]:
    """(steps, what follows the grid)."""
    if old is not None and len(old.steps):
        return old.steps, sent
    columns = like.shape[-1] if like.ndim > 1 else 1
    return how.quantiser.cut(sent, columns) if len(sent) else (np.zeros(0), sent)


# ---- makes, names, lengths ----


def _make(entry: Tree) -> str:
    structure, arrays = tree.pack(entry)
    return "\n".join([structure, *(f"{a.dtype.str}:{','.join(map(str, a.shape))}" for a in arrays)])


@lru_cache(maxsize=256)
def _template(make: str) -> Tree:
    """Arrays without memory of their own in the structure and shapes that a make tells."""
    structure, *arrays = make.split("\n")
    template = tree.unpack(structure, [_claimed(*text.partition(":")[::2]) for text in arrays], importing=False)
    if not all(isinstance(leaf, np.ndarray) for leaf in tree.leaves(template)):
        raise ValueError("a number stands where an array belongs")
    return template


def _claimed(dtype: str, dims: str) -> np.ndarray:
    """(dtype, "3,4") as an array of zeros that takes up no memory."""
    sizes = dims.split(",") if dims else []
    shape = [int(n) for n in sizes if n.isdecimal() and len(n) < 20]
    if len(shape) < len(sizes) or claimed_bytes(dtype, shape) > MOST:
        raise ValueError(f"an array of shape {dims[:40]!r} is claimed")
    return np.broadcast_to(np.zeros((), dtype), shape)


def _texts(known: Memory) -> list[str]:
    """A name and make that both ends know, if any: others are told by how they differ from it."""
    return [f"{name}\n{part.make}" for name, part in sorted(known.items())][:1]


def _deflated(text: str, texts: list[str]) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, RAW, zdict="".join(texts).encode())
    return packer.compress(text.encode()) + packer.flush()


def _inflated(packed: bytes, texts: list[str]) -> str:
    try:
        return inflated(packed, LONGEST, "".join(texts).encode()).decode()
    except UnicodeDecodeError as error:
        raise ValueError("a name is no text") from error


def _remembered(old: Part | None, make: str, i: int, leaf: np.ndarray) -> Leaf | None:
    """The memory of the i-th array of an entry with the same structure, where it has the shape of this one."""
    if old is None or old.make.partition("\n")[0] != make.partition("\n")[0]:
        return None
    value = old.leaves[i].value
    return old.leaves[i] if value.shape == leaf.shape and value.dtype.kind == leaf.dtype.kind else None


def _quantised(leaf: np.ndarray) -> bool:
    return leaf.dtype.kind == "f" and leaf.size >= SMALL


def _text(content: bytes) -> bytes:
    return length(len(content)) + content


def checksum(held: Memory) -> int:
    crc = 0
    for leaf in _arrays(held):
        crc = zlib.crc32(np.asarray(leaf, order="C").tobytes(), crc)
    return crc


def _arrays(held: Memory) -> Iterator[np.ndarray]:
    return (leaf.value for _, part in sorted(held.items()) for leaf in part.leaves)
