"""Flower's messages as a transport: our bytes are one record of a message, a node's private JSON is its group id.

The common bytes are equal in all messages of a question, so Flower stores them once. They are a `ConfigRecord` while
small (fewer requests) and an `ArrayRecord` when large (sent in chunks). A letter, if there is one, is a second record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from unpooled.flower import objects  # noqa: F401  # changes how grids wait for late objects
from unpooled.remote.federation import Remote
from unpooled.remote.transport import Peer, Reply, Request
from unpooled.tree import SchemaError

KEY = "unpooled"
LETTER = "letter"
SMALL = 4 * 2**20  # largest ConfigRecord, in bytes
POLL = 0.02  # seconds between two polls at first; grows with the time waited
MAX_POLL = 0.5

LOST = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)


class Flower(Remote):
    """A federation over a Flower grid: `GaussianMixture(3).fit(Flower(grid))`.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The grid of a ServerApp, or of `unpooled.flower.connect`.
    **options
        As of `unpooled.remote.Remote`: min_clients, names, columns, timeout, wait, max_bytes, say.
    """

    def __init__(self, grid: Grid, **options: Any):
        """A federation over Flower's grid; `options` are those of Remote."""
        super().__init__(FlowerTransport(grid), **options)


class FlowerTransport:
    """`unpooled.remote.Transport` over a Flower grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Any grid. If it has a method `peers`, that gives the names of admitted keys; if it has `wait_messages`, the
        server holds requests until there are replies.
    """

    def __init__(self, grid: Grid):
        """Send and receive over Flower's grid."""
        self.grid = grid

    def peers(self) -> list[Peer]:
        """Every node the grid knows."""
        peers = getattr(self.grid, "peers", None)
        return peers() if peers is not None else [Peer(n) for n in self.grid.get_node_ids()]

    def send(self, requests: Sequence[Request]) -> list[str]:
        """Push one Flower message per request; equal contents are shared."""
        shared: dict[bytes, RecordDict] = {}
        messages = []
        for request in requests:
            content = shared.setdefault(request.message, to_records(request.message))
            if request.letter:
                content = RecordDict({**content, LETTER: _record(request.letter)})
            messages.append(Message(content, request.node, "query", group_id=request.private))
        return [i or "" for i in self.grid.push_messages(messages)]

    def receive(self, ids: Sequence[str], wait: float) -> list[Reply]:
        """Pull the replies there are; poll until one comes or `wait` seconds have passed."""
        patient = getattr(self.grid, "wait_messages", None)
        if patient is not None:
            return [_reply(m) for m in patient(list(ids), wait)]
        start = time.monotonic()
        pause = POLL
        while True:
            found = [_reply(m) for m in self.grid.pull_messages(list(ids))]
            left = wait - (time.monotonic() - start)
            if found or left <= 0:
                return found
            time.sleep(min(pause, left))
            pause = min(2 * pause, MAX_POLL)

    def problem(self) -> str:
        """What is wrong with the connection, if the grid knows."""
        problem = getattr(self.grid, "problem", None)
        return problem() if problem is not None else ""


def _reply(message: Message) -> Reply:
    """A Flower message as a `Reply`, with an error if it cannot be read."""
    request = message.metadata.reply_to_message_id
    node = message.metadata.src_node_id
    if message.has_error():
        return Reply(request, node, error=f"Flower: {message.error.reason}", lost=message.error.code in LOST)
    try:
        return Reply(request, node, from_records(message.content))
    except SchemaError as error:
        return Reply(request, node, error=str(error))


# ---- bytes in records ----


def to_records(message: bytes) -> RecordDict:
    """The records of a message's content."""
    return RecordDict({KEY: _record(message)})


def from_records(content: RecordDict) -> bytes:
    """The bytes in a message's content; SchemaError for records that are not ours. Arrays are read without pickle."""
    return _bytes(content.get(KEY))


def letter_of(content: RecordDict) -> bytes:
    """The letter that a node was sent with a message; empty if there is none."""
    return _bytes(content[LETTER]) if LETTER in content else b""


def _record(message: bytes) -> ConfigRecord | ArrayRecord:
    """Bytes as a record."""
    if len(message) <= SMALL:
        return ConfigRecord({"message": message})
    return ArrayRecord({"message": Array(np.frombuffer(message, np.uint8))})


def _bytes(record: Any) -> bytes:
    """The bytes of a record; SchemaError if it is not one of ours."""
    try:
        found = record["message"]
        message = found.numpy().tobytes() if isinstance(record, ArrayRecord) else found
    except (KeyError, TypeError, ValueError, EOFError) as error:
        raise SchemaError("the message's records are not those of unpooled") from error
    if not isinstance(message, bytes):
        raise SchemaError("the message's record holds no bytes")
    return message
