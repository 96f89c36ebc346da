"""Who is behind the grid: Flower's node ids come and go, names stay. Each new node is asked once who it is; two of one name are refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from unpooled import wire
from unpooled.errors import suggest
from unpooled.flower.records import from_records, to_records
from unpooled.tree import SchemaError

LOOK = 0.5  # seconds between looks
ASK_AGAIN = 5.0  # seconds after which a node that did not say who it is gets asked again; doubles

LOST = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)


def lost(reply: Message) -> bool:
    """Whether Flower reports that a message or its answer got lost, which says nothing about the node: ask again."""
    return reply.has_error() and reply.error.code in LOST


class Roster:
    """Names, the node each is at, and the columns that all have."""

    def __init__(self, grid: Grid, columns: Sequence[str] | None):
        self.grid, self.columns = grid, None if columns is None else list(columns)
        self._asked_for, self.settled = columns is not None, False
        self._held: dict[str, list[str] | None] = {}
        self.nodes: dict[str, int] = {}
        self.identities: dict[str, str] = {}
        self.refused: dict[int, str] = {}
        self._ids: set[int] = set()
        self._looked = 0.0
        self._asked: dict[str, int] = {}  # message id -> node
        self._again: dict[int, tuple[float, float]] = {}  # node -> (when to ask again, patience)

    @property
    def unknown(self) -> set[int]:
        """Nodes that have yet to say who they are."""
        return self._ids - set(self.nodes.values()) - set(self.refused)

    def online(self, name: str) -> int | None:
        node = self.nodes.get(name)
        return node if node in self._ids else None

    def look(self) -> None:
        """See who is there (twice a second at most), ask newcomers, take what they say; never waits."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._ids, self._looked = set(self.grid.get_node_ids()), now
        due = [n for n in sorted(self.unknown) if now >= self._again.get(n, (0.0, 0.0))[0]]
        if due:
            hello = to_records(wire.pack({"kind": "hello"}))
            ids = self.grid.push_messages([Message(hello, n, "query") for n in due])
            self._asked.update({i: n for n, i in zip(due, ids) if i})
            self._again.update({n: self._later(n, now) for n in due})
        self._asked = {i: n for i, n in self._asked.items() if n in self.unknown}
        if self._asked:
            for reply in self.grid.pull_messages(list(self._asked)):
                self._welcome(reply)

    def _later(self, node: int, now: float) -> tuple[float, float]:
        patience = 2 * self._again.get(node, (0.0, ASK_AGAIN / 2))[1]
        return now + patience, patience

    def _welcome(self, reply: Message) -> None:
        node = self._asked.pop(reply.metadata.reply_to_message_id, None)
        if node not in self.unknown:
            return
        if lost(reply):
            self._again.pop(node, None)
            return
        try:
            if reply.has_error():
                raise SchemaError(f"a node answers with an error of Flower's: {reply.error.reason}"[:300])
            self._admit(node, wire.unpack(from_records(reply.content), 2**24).head)
        except Exception as error:
            self.refused[node] = str(error)

    def _admit(self, node: int, head: dict[str, Any]) -> None:
        name, identity = head.get("name"), head.get("identity")
        if "refused" in head:
            raise SchemaError(f"{str(name)[:60]} refused to say who it is: {str(head['refused'])[:300]}")
        if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable() and isinstance(identity, str)):
            raise SchemaError("a node has no name that can be printed: give it one in its node.toml")
        if self.identities.get(name, identity) != identity:
            raise SchemaError(f"there are two nodes called {name!r}: the first stays, give the other a name of its own")
        self._held[name] = _names(name, head.get("columns"))
        if self.settled:
            self._agree(name)
        self.identities[name], self.nodes[name] = identity, node

    # ---- columns ----

    def settle(self) -> None:
        """Fix the columns: those asked for, or those of the first node by name; a node that has others is refused."""
        if self.settled or not self.nodes:
            return
        if self.columns is None:
            self.columns = self._held[min(self.nodes)]
        self.settled = True
        for name in sorted(self.nodes):
            try:
                self._agree(name)
            except SchemaError as error:
                self.refused[self.nodes.pop(name)] = str(error)

    def _agree(self, name: str) -> None:
        held, wanted = self._held[name], self.columns
        if (wanted is None) != (held is None):
            raise SchemaError(f"{name!r} and the other nodes do not all have column names: give all or none a table")
        lacking = [c for c in wanted or () if c not in set(held or ())]
        if lacking:
            raise SchemaError(
                f"{name!r} has no column {lacking[0]!r} that may be used: {suggest(lacking[0], held or ())}"
            )
        extra = [c for c in held or () if c not in set(wanted or ())]
        if extra and not self._asked_for:
            raise SchemaError(
                f"{name!r} has a column {extra[0]!r} that others have not: name those you want with columns="
            )

    def check(self, name: str, node: int, head: dict[str, Any]) -> None:
        """An answer must come from the node it was asked of."""
        if node != self.nodes.get(name) or head.get("name") != name or head.get("identity") != self.identities[name]:
            raise SchemaError(f"the answer does not come from {name!r}")


def _names(name: str, columns: Any) -> list[str] | None:
    if columns is not None and not (isinstance(columns, list) and all(isinstance(c, str) for c in columns)):
        raise SchemaError(f"{name!r} does not say what its columns are called")
    return columns
