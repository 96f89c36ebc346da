"""Fewer bytes for any question: each client sends its answer's change since the last one, quantised and entropy-coded.

The change is taken against a memory that both ends keep (V <- V + alpha Q(answer - V)), so what quantisation loses comes later and a fit
that settles sends ever smaller errors. The first answer of a client goes with eight bits a number and tells its shapes; integers and
small arrays always go as they are. The server keeps one memory a client and question: clients x statistic numbers. `parts` has the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Int, received_bytes, to_numpy
from unpooled.choices import describe, resolve
from unpooled.client import STEP, Ask, Client, client, generator
from unpooled.errors import BadParameter
from unpooled.federation import Federation, Layer
from unpooled.layers.compression import message as parts
from unpooled.layers.compression.quantisers import QUANTISERS, Dither, Grid, TopK, memory_step
from unpooled.parameters import at_least, flag, within
from unpooled.tree import Tree

MEMORIES = "compressed"  # what a client keeps its memories under, before the question's name
FINE_GRID = Grid(levels=127)
REMEDY = "it is asked afresh, start that client again if it goes on"


@client("compressed.compress", STEP, batched=False)
def compress(
    up: Tree, client: Client, *, quantiser: dict, alpha: float | None, question: str, forget: list
) -> Int[Array, "bytes"]:
    """The answer as bytes; alpha=None keeps no memory."""
    up, key = tree.map(to_numpy, up), f"{MEMORIES} {question}"
    held = None if client.name in forget else client.state.get(key)
    how = [_how(quantiser, alpha, question, client.moment, client.name) for _ in range(2)]  # both draw from the start
    sent = parts.write(up, held, how[0])
    if alpha is not None:
        client.state[key] = parts.read(sent, held, how[1])[1]
    return np.frombuffer(sent, np.uint8)


class Compressed(Layer):
    """`Compressed(fed, levels=7)`: every answer is quantised to `levels` steps each way (random dithering).

    quantiser : instead of levels, any of `unpooled.layers.compression.quantisers`:
        "grid", {"name": "sparsify", "keep": 0.5}, TopK(0.1), ... A grid sends
        least where a fit settles; what it rounds stays rounded. Answers to a GATHER, whose rounding nothing averages, get a fine one.
    memory : send changes; without it, every answer is quantised whole. Top-k needs it: there it is the error feedback.
    alpha : the memory's step, 1/(1 + omega) unless given, omega being what rounding usually loses; 1 for top-k.
    max_bytes : an answer whose numbers would take up more, once they are unpacked, is refused before memory is touched.
    """

    def __init__(
        self,
        inner: Federation,
        *,
        levels: int | None = None,
        quantiser: Any = None,
        memory: bool = True,
        alpha: float | None = None,
        max_bytes: int = 2**28,
    ):
        super().__init__(inner)
        if levels is not None and quantiser is not None:
            raise BadParameter("levels= is short for quantiser=Dither(levels): give one of them")
        self.quantiser = resolve(
            Dither(7 if levels is None else levels) if quantiser is None else quantiser, QUANTISERS, "quantiser"
        )
        if alpha is not None:
            within("alpha", alpha, 0, 1, "the memory's step")
        at_least("max_bytes", max_bytes, 1)
        flag("memory", memory)
        if isinstance(self.quantiser, TopK) and not memory:
            raise BadParameter("top-k alone is biased, memory= is its error feedback: set memory=True")
        self.alpha = (alpha or memory_step(self.quantiser, 10**9)) if memory else None
        self.max_bytes = max_bytes
        self._memories: dict[str, dict[str, Tree]] = {}  # client -> question -> what both ends remember
        self._forget: set[str] = set()

    def wrap(self, ask: Ask) -> Ask:
        return self._wrapped(ask, self.quantiser)

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        coarse = isinstance(self.quantiser, Grid)
        return self.inner.gather(self._wrapped(ask, FINE_GRID if coarse else self.quantiser), down)

    def _wrapped(self, ask: Ask, quantiser: Any) -> Ask:
        options = {"quantiser": describe(quantiser, QUANTISERS), "alpha": self.alpha, "question": ask.name}
        return ask.then(compress, undo=self._undo(options), undo_total=None, forget=sorted(self._forget), **options)

    def tell(self, ask: Ask, down: Tree) -> None:
        self.inner.tell(ask, down)  # nothing comes back that could be compressed

    def snapshot(self) -> Tree:
        return {"inner": self.inner.snapshot(), "memories": self._memories}

    def restore(self, saved: Tree) -> None:
        self.inner.restore(saved.get("inner", {}))
        self._memories.clear()
        self._memories.update(saved.get("memories", {}))

    def _undo(self, options: Mapping[str, Any]):
        question = options["question"]

        def undo(sent: Tree, name: str) -> Tree:
            mine = self._memories.setdefault(name, {}) if self.alpha is not None else {}
            how = _how(**options, moment=(self.journal.seed, self.journal.round), name=name)
            self._forget.add(name)  # until what it sent could be read
            try:
                meant, mine[question] = parts.read(received_bytes(sent), mine.get(question), how, self.max_bytes)
            except ValueError as error:
                raise tree.SchemaError(f"the answer of {name!r} cannot be read ({error}): {REMEDY}") from error
            self._forget.discard(name)
            return meant

        return undo


def _how(quantiser: Mapping, alpha: float | None, question: str, moment: tuple[int, int], name: str) -> parts.How:
    """Both ends draw alike, apart from what the question itself draws; a grid's draws are the same in every round."""
    seed, round = moment
    own = partial(_draws, seed, f"{name}, {question}")
    rng = generator(seed, round, f"{name}, {MEMORIES}")
    return parts.How(resolve(quantiser, QUANTISERS, "quantiser"), alpha, rng, own)


def _draws(seed: int, whose: str, array: str, shape: tuple[int, ...]) -> np.ndarray:
    return generator(seed, 0, f"{whose}, {array}, {MEMORIES}").random(shape)
