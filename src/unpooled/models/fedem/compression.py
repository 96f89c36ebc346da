"""FedEM's codec for `Compressed`: what a client's answer looks like as bytes, and how its memory follows.

A message is a header of 21 bytes and the change of the statistics. The change is scaled by the current parameters (`family.whiten`), a
linear map that both ends know, so that all numbers have similar sizes; then it is quantised. The client adds alpha times what the server
will read to its memory V. The server adds alpha times the total to the sum of the memories: it needs no memory per client.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.choices import resolve
from unpooled.client import Ask, Client, generator
from unpooled.federation import Journal
from unpooled.layers.compression import Decoder, Dither, Identity, Scheme, blocks, register_codec
from unpooled.models.fedem.client import (
    FIRST,
    REPEATED,
    UPDATED,
    Contribution,
    Down,
    contribute,
    contribution,
)
from unpooled.models.fedem.families import FAMILIES
from unpooled.tree import Tree

FINE = Dither(levels=127)  # for a client's first message, which is not a change yet
ADAPTIVE_LEVELS = 40  # levels per unit of relative change of the statistics, if that is more than were asked for
HEADER = struct.Struct("<BddI")  # levels, rows, mean log-likelihood, 4 x expectations computed + kind of answer


class StatisticsCodec:
    """Both sides of the compression of `fedem.contribute`."""

    def settings(self, ask: Ask) -> dict[str, Any]:
        """What a client has to know of the family."""
        return {"family": ask.options["family"]}

    def size(self, ask: Ask, down: Down) -> int:
        """How many numbers an answer has."""
        family = resolve(ask.options["family"], FAMILIES, "family")
        return tree.flatten(family.moments(down.params)).size

    # ---- the client's side ----

    def encode(self, up: Contribution, client: Client, scheme: Scheme, settings: dict[str, Any]) -> bytes:
        """A client's answer as bytes; its memory follows what the bytes say."""
        family = resolve(settings["family"], FAMILIES, "family")
        pending = client.state.pop("pending")
        params = pending["params"]
        kind = _kind_of(up)
        change = to_blocks(family, scheme.quantiser, params, up.first if kind == FIRST else up.change)
        whole = to_blocks(family, scheme.quantiser, params, pending["whole"]) if scheme.alpha else []
        levels = _levels(scheme.quantiser, change, whole)
        quantiser = _message_quantiser(scheme.quantiser, kind, levels)
        body = blocks.encode(quantiser, change, _rng(client.moment, client.name))
        if scheme.alpha:
            received = blocks.decode(quantiser, [b.shape for b in change], body, _rng(client.moment, client.name))
            step = 1.0 if kind == FIRST else scheme.alpha
            received_stats = from_blocks(family, scheme.quantiser, params, received)
            client.state["memory"] = tree.map(lambda v, c: v + step * c, client.state["memory"], received_stats)
        mean_loglik = float(up.loglik / up.rows)
        return HEADER.pack(levels, float(up.rows), mean_loglik, 4 * int(up.expectations) + kind) + body

    # ---- the server's side: messages add in the scaled form, and the total is scaled back once ----

    def decoder(self, ask: Ask, down: Down, scheme: Scheme, journal: Journal) -> Decoder:
        """How the server reads the answers of one round."""
        family = resolve(ask.options["family"], FAMILIES, "family")
        quantiser = scheme.quantiser
        params = down.params
        shapes = [b.shape for b in to_blocks(family, quantiser, params, family.moments(params))]

        def decode(content: bytes, name: str) -> Contribution:
            """One client's answer from its bytes."""
            answer = _read(content, quantiser, shapes, _rng((journal.seed, journal.round), name))
            tree.check(answer, Contribution)
            return answer

        def finish(total: Contribution) -> Contribution:
            """The total in the statistics' own coordinates."""
            change = from_blocks(family, quantiser, params, total.change)
            first = from_blocks(family, quantiser, params, total.first)
            return total._replace(change=change, first=first)

        return Decoder(decode, finish)


def _read(content: bytes, quantiser: Any, shapes: list, rng: np.random.Generator) -> Contribution:
    """One client's message, its statistics still scaled; ValueError for bytes that `encode` never writes."""
    if len(content) < HEADER.size:
        raise ValueError("its header is cut off")
    levels, rows, mean_loglik, packed = HEADER.unpack(content[: HEADER.size])
    expectations, kind = divmod(packed, 4)
    if kind > FIRST or (isinstance(quantiser, Dither) and not quantiser.levels <= levels <= FINE.levels):
        raise ValueError("its header has values that no client of FedEM writes")
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are refused
        change = blocks.decode(_message_quantiser(quantiser, kind, levels), shapes, content[HEADER.size :], rng)
        zeros = [np.zeros(shape) for shape in shapes]
        return contribution(kind, rows, mean_loglik, expectations, change, zeros)


def _kind_of(up: Contribution) -> int:
    """The kind of a contribution, by the rows it counts."""
    if up.first_rows > 0:
        return FIRST
    return UPDATED if up.updated_rows > 0 else REPEATED


# ---- scaling ----


def to_blocks(family: Any, quantiser: Any, params: Tree, stats: Tree) -> list[np.ndarray]:
    """The statistics as matrices of numbers of similar sizes; unscaled where nothing is rounded."""
    return [tree.flatten(stats)[None]] if isinstance(quantiser, Identity) else family.whiten(params, stats)


def from_blocks(family: Any, quantiser: Any, params: Tree, matrices: list[np.ndarray]) -> Tree:
    """The inverse of `to_blocks`."""
    if isinstance(quantiser, Identity):
        return tree.unflatten(matrices[0][0], family.moments(params))
    return family.unwhiten(params, matrices)


# ---- how fine a message is ----


def _levels(quantiser: Any, change: list[np.ndarray], whole: list[np.ndarray]) -> int:
    """As many levels as were asked for; more while the statistics change quickly."""
    if not isinstance(quantiser, Dither):
        return 0
    size = _norm(whole)
    if not size:
        return quantiser.levels
    wanted = np.ceil(ADAPTIVE_LEVELS * _norm(change) / size)
    return int(np.clip(wanted, quantiser.levels, FINE.levels))


def _norm(matrices: list[np.ndarray]) -> float:
    """The norm of all blocks together."""
    return float(np.sqrt(sum(float(np.sum(m**2)) for m in matrices)))


def _message_quantiser(quantiser: Any, kind: int, levels: int) -> Any:
    """The quantiser of one message: fine for first answers, with fewer levels where those do."""
    if isinstance(quantiser, Identity):
        return quantiser
    if kind == FIRST:
        return FINE
    return quantiser._replace(levels=levels) if isinstance(quantiser, Dither) else quantiser


def _rng(moment: tuple[int, int], name: str) -> np.random.Generator:
    """The draws of the quantiser, the same at both ends and apart from those of minibatches."""
    return generator(*moment, f"{name}, sent")


register_codec(contribute, StatisticsCodec())
