"""An answer as bytes, for `Compressed`: what changed since the last one, array by array, and what both ends then remember. Sends nothing.

An answer that is a dict is remembered entry by entry: one that was not there lately goes whole, the others go as changes.

Bytes: what it is a change of (a checksum of the memory), the number of entries; for each its name and make unless they are known, then for
each array its length and content. Integers and small arrays go as they are (with a grid, as float32), or not at all where nothing changed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.maths.coding import length, read_length
from unpooled.maths.quantise import Dither, Grid
from unpooled.tree import Tree

PATIENCE = 3  # answers without it after which an entry is forgotten
SMALL = 16  # numbers; a smaller array is sent as it is
FINE = Dither(levels=127)  # for what is sent first
RAW = -15  # deflate without a header
CHANGE, AFRESH = 0, 1  # the first byte: a change of the memory, or not
NUMBERS, COUNTS = 0, 1  # the first byte of a quantised array: of any sign, or of none below 0, so that none may arrive


class Leaf(NamedTuple):
    """What both ends remember of an array."""

    value: np.ndarray
    steps: np.ndarray  # (columns,) of its grid; none where there is no grid


class Part(NamedTuple):
    """What both ends remember of an entry."""

    make: str  # structure and shapes
    leaves: list[Leaf]
    missed: int = 0  # answers since it was last there


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


# ---- reading ----


def read(content: bytes, held: Memory | None, how: How) -> tuple[Tree, Memory]:
    """(the answer that was meant, the memory after it); both ends run this, so their memories have the same bits."""
    known, at = held or {}, 1
    if content[0] == CHANGE:
        if held is None or struct.unpack("<I", content[1:5])[0] != checksum(known):
            raise tree.SchemaError("the answer is a change of something this server has not seen: it is asked afresh")
        at = 5
    texts = _texts(known)
    count, at = read_length(content, at)
    meant, memory = {}, {}
    for _ in range(max(count - 1, 1) if count != 1 else 0):
        (name, make), at = _read_name(content, at, known, texts)
        texts, old = [f"{name}\n{make}"], known.get(name)
        template = _template(make)
        values, leaves = [], []
        for i, like in enumerate(tree.leaves(template)):
            body, at = _next_text(content, at)
            value, leaf = _read_leaf(body, like, _remembered(old, make, i, like), how)
            values.append(value)
            leaves.append(leaf)
        meant[name], memory[name] = tree.rebuild(template, values), Part(make, leaves)
    missed = {name: part._replace(missed=part.missed + 1) for name, part in known.items() if name not in memory}
    return (meant if count else meant[""]), memory | {n: part for n, part in missed.items() if part.missed <= PATIENCE}


def _read_name(content: bytes, at: int, known: Memory, texts: list[str]) -> tuple[tuple[str, str], int]:
    place, at = read_length(content, at)
    if place:
        name = sorted(known)[place - 1]
        return (name, known[name].make), at
    packed, at = _next_text(content, at)
    name, _, make = _inflated(packed, texts).partition("\n")
    return (name, make), at


def _read_leaf(body: bytes, like: np.ndarray, old: Leaf | None, how: How) -> tuple[np.ndarray, Leaf]:
    if not _quantised(like):
        before = np.zeros_like(like) if old is None else old.value
        value = np.frombuffer(body, _sent_as(like, how)).reshape(like.shape).astype(like.dtype) if body else before
        return value, Leaf(value, np.zeros(0))
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
    cut = 2 + (like.shape[-1] if like.ndim > 1 else 1)
    return (how.quantiser.steps(sent[:cut]), sent[cut:]) if len(sent) else (np.zeros(0), sent)


# ---- makes, names, lengths ----


def _make(entry: Tree) -> str:
    structure, arrays = tree.pack(entry)
    return "\n".join([structure, *(f"{a.dtype.str}:{','.join(map(str, a.shape))}" for a in arrays)])


@lru_cache(maxsize=256)
def _template(make: str) -> Tree:
    structure, *shapes = make.split("\n")
    arrays = [np.zeros([int(n) for n in dims.split(",") if n], dtype) for dtype, dims in (s.split(":") for s in shapes)]
    return tree.unpack(structure, arrays)


def _texts(known: Memory) -> list[str]:
    """A name and make that both ends know, if any: others are told by how they differ from it."""
    return [f"{name}\n{part.make}" for name, part in sorted(known.items())][:1]


def _deflated(text: str, texts: list[str]) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, RAW, zdict="".join(texts).encode())
    return packer.compress(text.encode()) + packer.flush()


def _inflated(packed: bytes, texts: list[str]) -> str:
    return zlib.decompressobj(RAW, zdict="".join(texts).encode()).decompress(packed).decode()


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


def _next_text(content: bytes, at: int) -> tuple[bytes, int]:
    n, at = read_length(content, at)
    return content[at : at + n], at + n


def checksum(held: Memory) -> int:
    crc = 0
    for leaf in _arrays(held):
        crc = zlib.crc32(np.asarray(leaf, order="C").tobytes(), crc)
    return crc


def _arrays(held: Memory) -> Iterator[np.ndarray]:
    return (leaf.value for _, part in sorted(held.items()) for leaf in part.leaves)
