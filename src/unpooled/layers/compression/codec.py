"""Codecs: how a model brings its own scaling to `Compressed`. Sends nothing by itself.

`Compressed` turns any answer into bytes by a general rule. A question may register a codec that does better because it
knows what the numbers mean: FedEM's codec scales statistics by the current covariances and keeps its own memories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from unpooled.client import Ask, Client
from unpooled.federation import Journal
from unpooled.tree import Tree


class Scheme(NamedTuple):
    """How answers are compressed: the quantiser and the step of the clients' memories."""

    quantiser: Any
    alpha: float  # step of the clients' memories; 0 for no memory


class Decoder(NamedTuple):
    """The server's side of a codec, for one exchange."""

    decode: Callable[[bytes, str], Tree]  # (message, client name) -> numbers that add over clients
    finish: Callable[[Tree], Tree]  # the total of these numbers -> the total of the answers


class Codec(Protocol):
    """Both sides of the compression of one question, the client's (`encode`) and the server's (`decoder`)."""

    def settings(self, ask: Ask) -> dict[str, Any]:
        """What the client's side must know, as values that JSON can hold."""

    def size(self, ask: Ask, down: Tree) -> int:
        """How many numbers of one answer are quantised."""

    def encode(self, up: Tree, client: Client, scheme: Scheme, settings: dict[str, Any]) -> bytes:
        """The message for one answer; updates the client's memory."""

    def decoder(self, ask: Ask, down: Tree, scheme: Scheme, journal: Journal) -> Decoder:
        """The functions by which the server reads the messages; they raise ValueError to refuse one."""


CODECS: dict[str, Codec] = {}  # name of a question -> its codec


def register_codec(question: Ask, codec: Codec) -> None:
    """Let `Compressed` use `codec` for the answers to `question`."""
    CODECS[question.name] = codec
