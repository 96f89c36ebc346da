"""The layer `Compressed`: each client sends the change of its answer since the last one, quantised and entropy-coded.

The change is taken against a memory that both ends keep, V <- V + alpha Q(answer - V). What quantisation loses is sent
later, so a fit that converges makes smaller and smaller errors. The first answer of a client has eight bits per number
and carries its shapes; integers and small arrays are sent unchanged. The server keeps one memory per client and
question. A question with a codec (`codec.py`) is compressed by its codec instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Int, received_bytes, to_numpy
from unpooled.choices import describe, resolve
from unpooled.client import STEP, Ask, Client, client, generator
from unpooled.errors import BadParameter
from unpooled.federation import Federation, Layer
from unpooled.layers.compression import message
from unpooled.layers.compression.codec import CODECS, Codec, Scheme
from unpooled.layers.compression.quantisers import QUANTISERS, Dither, TopK, memory_step
from unpooled.parameters import at_least, flag, within
from unpooled.tree import Tree

MEMORY_KEY = "compressed"  # a client's memory is stored in its state under this word and the question's name
ANY_SIZE = 10**9  # stands for the size of an answer that is not known yet
EVERYONE = "*"  # in a list of clients
REMEDY = "it is asked afresh, start that client again if it goes on"


@client("compressed.compress", STEP, batched=False)
def compress(
    up: Tree,
    client: Client,
    *,
    quantiser: dict,
    alpha: float | None,
    question: str,
    forget: list,
    settings: dict | None = None,
) -> Int[Array, "bytes"]:
    """The answer as bytes; with alpha=None no memory is kept, with `settings` the question's codec is used."""
    if settings is not None:
        scheme = Scheme(resolve(quantiser, QUANTISERS, "quantiser"), alpha or 0.0)
        return np.frombuffer(CODECS[question].encode(up, client, scheme, settings), np.uint8)
    up = tree.map(to_numpy, up)
    key = f"{MEMORY_KEY} {question}"
    memory = None if {EVERYONE, client.name} & set(forget) else client.state.get(key)
    content = message.write(up, memory, _coding(quantiser, alpha, client.moment, client.name))
    if alpha is not None:  # the client reads its own message as the server will
        coding = _coding(quantiser, alpha, client.moment, client.name)
        _, client.state[key] = message.read(content, memory, coding)
    return np.frombuffer(content, np.uint8)


class Compressed(Layer):
    """Compress every answer that clients send.

    Parameters
    ----------
    inner : Federation
        The federation whose answers are compressed.
    levels : int, default=7
        Levels of the random rounding on each side of zero, 1 to 127; short for ``quantiser=Dither(levels)``.
    quantiser : quantiser, str or dict, default=None
        Instead of `levels`, any quantiser of `unpooled.layers.compression`, such as ``"cast"``, ``TopK(0.1)`` or
        ``{"name": "sparsify", "keep": 0.5}``.
    memory : bool, default=True
        Whether changes of the answers are sent; otherwise every answer is quantised whole. Top-k needs it for error
        feedback.
    alpha : float, default=None
        Step of the memory, above 0 and at most 1. None is 1 / (1 + omega) with omega the usual relative variance of the
        quantiser; 1 for top-k.
    max_bytes : int, default=2**28
        An answer that would take up more memory once decoded is refused before that memory is allocated.

    Attributes
    ----------
    quantiser : Dither, Sparsify, TopK, Cast or Identity
        The quantiser in use.
    memory, alpha, max_bytes
        As given.

    Notes
    -----
    A model may register a codec for its own questions. `FedEM` and `VRFedEM` do: their answers are scaled by the
    current parameters, and the server keeps the sum of the clients' memories, not one per client. ``FedEM(levels=3)``
    over ``fed`` and ``FedEM()`` over ``Compressed(fed, levels=3)`` send the same messages.

    The server reads single answers, so `Compressed` cannot be combined with `SecureSum`.

    References
    ----------
    Mishchenko et al., Distributed learning with compressed gradient differences, 2019.
    Dieuleveut et al., Federated-EM with heterogeneity mitigation and variance reduction, NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> sites = {name: np.random.default_rng(i).normal(size=(200, 6)) for i, name in enumerate("abcd")}
    >>> sizes = {}
    >>> plain, compressed = up.federate(sites), up.Compressed(up.federate(sites), levels=7)
    >>> for name, fed in {"plain": plain, "compressed": compressed}.items():
    ...     model = up.GaussianMixture(3, random_state=0, max_iter=10, tol=0).fit(fed)
    ...     sizes[name] = sum(row["bytes_up"] for row in model.history_)
    >>> sizes["compressed"] < sizes["plain"] / 3
    True
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
        if compression_of(inner) is not None:
            raise BadParameter("the federation is compressed already: put one Compressed around it, not two")
        if levels is not None and quantiser is not None:
            raise BadParameter("levels= is short for quantiser=Dither(levels): give one of them")
        if quantiser is None:
            quantiser = Dither(7 if levels is None else levels)
        self.quantiser = resolve(quantiser, QUANTISERS, "quantiser")
        if alpha is not None:
            within("alpha", alpha, 0, 1, "the memory's step")
        at_least("max_bytes", max_bytes, 1)
        flag("memory", memory)
        if isinstance(self.quantiser, TopK) and not memory:
            raise BadParameter("top-k alone is biased, memory= is its error feedback: set memory=True")
        self.memory = memory
        self.alpha = alpha
        self.max_bytes = max_bytes
        self._memories: dict[str, dict[str, Tree]] = {}  # client -> question -> what both ends remember
        self._forget: set[str] = set()

    def alpha_for(self, size: int) -> float:
        """The memory's step for answers of `size` numbers; 0 where no memory is kept."""
        if not self.memory:
            return 0.0
        return self.alpha or memory_step(self.quantiser, size)

    # ---- questions ----

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Ask for a SUM whose answers are compressed, by the question's codec if it has one."""
        codec = CODECS.get(ask.name)
        wrapped = self.wrap(ask) if codec is None else self._wrapped_by(codec, ask, down)
        return self.inner.sum(wrapped, down)

    def tell(self, ask: Ask, down: Tree) -> None:
        """Pass a TELL on unchanged."""
        self.inner.tell(ask, down)  # no answer comes back that could be compressed

    def wrap(self, ask: Ask) -> Ask:
        """The question with answers compressed by the general rule, unless they must be exact."""
        if ask.exact:
            return ask
        alpha = self.alpha_for(ANY_SIZE) if self.memory else None
        options = {"quantiser": describe(self.quantiser, QUANTISERS), "alpha": alpha, "question": ask.name}
        return ask.then(
            compress, undo=self._undo(options), undo_total=None, forget=self._must_forget(ask.name), **options
        )

    def _must_forget(self, question: str) -> list[str]:
        """Clients that must drop their memory of a question: those whose message the server could not read, or all.

        All clients drop it while the server has no memory of the question itself.
        """
        if not any(question in memories for memories in self._memories.values()):
            return [EVERYONE]
        return sorted(self._forget)

    def _wrapped_by(self, codec: Codec, ask: Ask, down: Tree) -> Ask:
        """The question with answers compressed by its own codec."""
        scheme = Scheme(self.quantiser, self.alpha_for(codec.size(ask, down)))
        decoder = codec.decoder(ask, down, scheme, self.journal)

        def decode(sent: Tree, name: str) -> Tree:
            """The numbers of one client's message; SchemaError if it cannot be read."""
            try:
                return decoder.decode(received_bytes(sent), name)
            except ValueError as error:
                raise tree.SchemaError(f"the answer of {name!r} cannot be read ({error}): {REMEDY}") from error

        return ask.then(
            compress,
            undo=decode,
            undo_total=lambda total, names: decoder.finish(total),
            quantiser=describe(scheme.quantiser, QUANTISERS),
            alpha=scheme.alpha,
            question=ask.name,
            forget=[],
            settings=codec.settings(ask),
        )

    def _undo(self, options: Mapping[str, Any]) -> Callable[[Tree, str], Tree]:
        """The function by which the server reads an answer that was compressed by the general rule."""
        question = options["question"]

        def undo(sent: Tree, name: str) -> Tree:
            """The answer of client `name`; SchemaError if its message cannot be read."""
            memories = self._memories.setdefault(name, {}) if self.memory else {}
            moment = (self.journal.seed, self.journal.round)
            coding = _coding(options["quantiser"], options["alpha"], moment, name)
            self._forget.add(name)  # until its message could be read
            try:
                content = received_bytes(sent)
                memory = memories.get(question)
                answer, memories[question] = message.read(content, memory, coding, self.max_bytes)
            except ValueError as error:
                raise tree.SchemaError(f"the answer of {name!r} cannot be read ({error}): {REMEDY}") from error
            self._forget.discard(name)
            return answer

        return undo

    # ---- checkpoints ----

    def snapshot(self) -> Tree:
        """The inner federation's snapshot and the server's memories."""
        # copied, so that later answers do not change the snapshot
        memories = {name: dict(questions) for name, questions in self._memories.items()}
        return {"inner": self.inner.snapshot(), "memories": memories}

    def restore(self, saved: Tree) -> None:
        """Go on from a snapshot; an empty one clears the memories."""
        self.inner.restore(saved.get("inner", {}))
        self._memories.clear()
        self._memories.update({name: dict(questions) for name, questions in saved.get("memories", {}).items()})


def compression_of(fed: Any) -> Compressed | None:
    """The `Compressed` among the layers of a federation, if there is one."""
    while fed is not None and not isinstance(fed, Compressed):
        fed = getattr(fed, "inner", None)
    return fed


def _coding(quantiser: Mapping, alpha: float | None, moment: tuple[int, int], name: str) -> message.Coding:
    """What both ends use for one message; both draw the same random numbers, from a separate stream."""
    rng = generator(*moment, f"{name}, {MEMORY_KEY}")
    return message.Coding(resolve(quantiser, QUANTISERS, "quantiser"), alpha, rng)
