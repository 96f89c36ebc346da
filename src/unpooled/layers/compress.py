"""Fewer bytes for any question: each client sends its answer's change since the last one, quantised and entropy-coded.

The change is taken against a memory that both ends keep (V <- V + alpha Q(answer - V)), so what quantisation loses comes later and a fit
that settles sends ever smaller errors. The first answer of a client goes with eight bits a number and tells its shapes; integers and
small arrays always go as they are. The server keeps one memory a client and question: clients x statistic numbers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Int, to_numpy
from unpooled.client import Ask, Client, client, generator
from unpooled.errors import BadParameter
from unpooled.federation import Federation, Layer
from unpooled.maths.named import describe, resolve, within
from unpooled.maths.quantise import QUANTISERS, Dither, TopK, memory_step
from unpooled.tree import Tree

SMALL = 16  # numbers; a smaller array is sent as it is
FINE = Dither(levels=127)  # for the first answer
CHANGE, FIRST, WHOLE = 0, 1, 2  # the first byte: a change of the memory, the first of a client, or no memory at all
NUMBERS, COUNTS = 0, 1  # the first byte of a quantised array: of any sign, or of none below 0, so that none may arrive
MEMORIES = "compressed"  # the key of the server's memories in a snapshot


@client(batched=False)
def compress(
    up: Tree, client: Client, *, quantiser: dict, alpha: float | None, question: str, forget: list
) -> Int[Array, "bytes"]:
    """The answer as bytes; alpha=None keeps no memory."""
    up = tree.map(to_numpy, up)
    key = f"{MEMORIES} {question}"
    held = None if client.name in forget else client.state.get(key)
    if held is not None and not _fits(up, held):
        held = None
    way = CHANGE if held is not None else (WHOLE if alpha is None else FIRST)
    q, rng = _quantiser(way, quantiser), _rng(client.moment, client.name)
    olds = tree.leaves(up if held is None else held)
    bodies = (_body(leaf, old if way == CHANGE else 0.0, q, rng) for leaf, old in zip(tree.leaves(up), olds))
    sent = np.frombuffer(_head(way, held, up) + b"".join(bodies), np.uint8)
    if alpha is not None:
        client.state[key] = read(sent, held, quantiser, alpha, _rng(client.moment, client.name))[1]
    return sent


def read(sent: Array, held: Tree, quantiser: Mapping, alpha: float, rng: np.random.Generator) -> tuple[Tree, Tree]:
    """(the answer that was meant, the memory after it); both ends run this, so their memories have the same bits."""
    content = bytes(to_numpy(sent))
    template, at = _read_head(content, held)
    way = content[0]
    q, step = _quantiser(way, quantiser), alpha if way == CHANGE else 1.0
    meant, kept = [], []
    for leaf in tree.leaves(template):  # zeros, or the memory
        part, at = _next_part(content, at)
        if _quantised(leaf):
            change = q.decode(np.frombuffer(part[1:], np.uint8), leaf.size, rng).reshape(leaf.shape)
            meant.append(np.maximum(leaf + change, 0.0) if part[0] == COUNTS else leaf + change)
            kept.append(leaf + step * change)
        else:
            meant.append(np.frombuffer(part, leaf.dtype).reshape(leaf.shape))
            kept.append(meant[-1])
    return tree.rebuild(template, meant), tree.rebuild(template, kept)


class Compressed(Layer):
    """`Compressed(fed, levels=7)`: every answer is quantised to `levels` steps each way (random dithering).

    quantiser : instead of levels, any of `unpooled.maths.quantise`: "cast", {"name": "sparsify", "keep": 0.5}, TopK(0.1), ...
    memory : send changes; without it, every answer is quantised whole. Top-k needs it: there it is the error feedback.
    alpha : the memory's step, 1/(1 + omega) unless given, omega being what rounding usually loses; 1 for top-k.
    """

    def __init__(
        self,
        inner: Federation,
        *,
        levels: int | None = None,
        quantiser: Any = None,
        memory: bool = True,
        alpha: float | None = None,
    ):
        super().__init__(inner)
        if levels is not None and quantiser is not None:
            raise BadParameter("levels= is short for quantiser=Dither(levels): give one of them")
        self.quantiser = resolve(
            Dither(7 if levels is None else levels) if quantiser is None else quantiser, QUANTISERS, "quantiser"
        )
        if alpha is not None:
            within("alpha", alpha, 0, 1, "the memory's step")
        if isinstance(self.quantiser, TopK) and not memory:
            raise BadParameter("top-k alone is biased, memory= is its error feedback: set memory=True")
        self.alpha = (alpha or memory_step(self.quantiser, 10**9)) if memory else None
        self._memories: dict[str, dict[str, Tree]] = {}  # client -> question -> what both ends remember
        self._forget: set[str] = set()

    def wrap(self, ask: Ask) -> Ask:
        options = {"quantiser": describe(self.quantiser, QUANTISERS), "alpha": self.alpha, "question": ask.name}
        return ask.then(compress, undo=self._undo(options), forget=sorted(self._forget), **options)

    def tell(self, ask: Ask, down: Tree) -> None:
        self.inner.tell(ask, down)  # nothing comes back that could be compressed

    def snapshot(self) -> Tree:
        return {**self.inner.snapshot(), MEMORIES: self._memories}

    def restore(self, saved: Tree) -> None:
        self.inner.restore(saved)
        self._memories.clear()
        self._memories.update(saved.get(MEMORIES, {}))

    def _undo(self, options: Mapping[str, Any]):
        question, alpha, quantiser = options["question"], options["alpha"], options["quantiser"]

        def undo(sent: Tree, name: str) -> Tree:
            mine = self._memories.setdefault(name, {}) if alpha is not None else {}
            moment = (self.journal.seed, self.journal.round)
            self._forget.add(name)  # until what it sent could be read
            meant, mine[question] = read(sent, mine.get(question), quantiser, alpha or 1.0, _rng(moment, name))
            self._forget.discard(name)
            return meant

        return undo


# ---- bytes: head (what it is a change of), then for each leaf its length and content ----


def _head(way: int, held: Tree, up: Tree) -> bytes:
    if way == CHANGE:
        return struct.pack("<BI", way, _checksum(held))
    structure, arrays = tree.pack(up)
    shapes = [f"{a.dtype.str}:{','.join(map(str, a.shape))}" for a in arrays]
    text = zlib.compress("\n".join([structure, *shapes]).encode(), 9)
    return bytes([way]) + _length(len(text)) + text


def _read_head(content: bytes, held: Tree) -> tuple[Tree, int]:
    """(what the answer is a change of, where its leaves begin)."""
    if content[0] == CHANGE:
        if held is None or struct.unpack("<I", content[1:5])[0] != _checksum(held):
            raise tree.SchemaError("the answer is a change of something this server has not seen: it is asked afresh")
        return held, 5
    text, at = _next_part(content, 1)
    structure, *shapes = zlib.decompress(text).decode().split("\n")
    arrays = [np.zeros([int(n) for n in dims.split(",") if n], dtype) for dtype, dims in (s.split(":") for s in shapes)]
    return tree.unpack(structure, arrays), at


def _quantiser(way: int, quantiser: Mapping) -> Any:
    return FINE if way == FIRST else resolve(quantiser, QUANTISERS, "quantiser")


def _body(leaf: np.ndarray, old: Any, q: Any, rng: np.random.Generator) -> bytes:
    if _quantised(leaf):
        change = np.asarray(leaf - old, np.float64)
        if not np.isfinite(change).all():
            raise tree.SchemaError("the answer holds numbers that are not finite")
        content = bytes([COUNTS if (leaf >= 0).all() else NUMBERS]) + q.encode(change.ravel(), rng).tobytes()
    else:
        content = leaf.tobytes()
    return _length(len(content)) + content


def _quantised(leaf: np.ndarray) -> bool:
    return leaf.dtype.kind == "f" and leaf.size >= SMALL


def _fits(up: Tree, held: Tree) -> bool:
    """Whether the memory has the make of this answer."""
    makes = [[tree.pack(t)[0], *((np.shape(a), np.asarray(a).dtype.kind) for a in tree.leaves(t))] for t in (up, held)]
    return makes[0] == makes[1]


def _length(n: int) -> bytes:
    """Seven bits a byte, the last one below 128."""
    out = b""
    while n >= 128:
        out, n = out + bytes([n % 128 + 128]), n // 128
    return out + bytes([n])


def _next_part(content: bytes, at: int) -> tuple[bytes, int]:
    n, shift = 0, 0
    while True:
        byte, at = content[at], at + 1
        n, shift = n + ((byte % 128) << shift), shift + 7
        if byte < 128:
            return content[at : at + n], at + n


def _checksum(held: Tree) -> int:
    crc = 0
    for leaf in tree.leaves(held):
        crc = zlib.crc32(np.asarray(leaf, order="C").tobytes(), crc)
    return crc


def _rng(moment: tuple[int, int], name: str) -> np.random.Generator:
    """Both ends draw alike, apart from what the question itself draws."""
    return generator(*moment, f"{name}, {MEMORIES}")
