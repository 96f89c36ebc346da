"""Which client is at which node: a transport's node ids change, names stay.

Each new node is sent one `hello`; its reply has its name, an identity that survives restarts, and its columns. A node
is rejected, with a reason, if another node has its name, if its key was admitted under another name, or if its columns
differ.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from unpooled import wire
from unpooled.errors import printable, suggest
from unpooled.remote.transport import Peer, Reply, Request, Transport
from unpooled.tree import SchemaError

POLL = 0.5  # seconds between two checks of who is connected
HELLO_BYTES = 2**24  # largest reply to hello
OFFERED = "; a node offers what its policy and its [data.columns] list"


class Roster:
    """The names of clients, the node id of each, and the columns that all of them have.

    Parameters
    ----------
    transport : Transport
        Where the nodes are.
    columns : sequence of str or None
        The columns wanted; None for those of the first node by name.
    retry : float, default=5.0
        Seconds until a node that did not reply to hello is asked again; doubles each time.
    apart : sequence of str or None, default=()
        Columns that are not features: labels and weights.

    Attributes
    ----------
    nodes : dict of str to int
        client name -> node id.
    rejected : dict of int to str
        node id -> why the node is not accepted.
    settled : bool
        Whether the columns are fixed.
    """

    def __init__(
        self, transport: Transport, columns: Sequence[str] | None, retry: float = 5.0, apart: Sequence[str | None] = ()
    ):
        self.transport = transport
        self.retry = retry
        self.apart = set(apart)
        self.columns = None if columns is None else list(columns)
        self.settled = False  # whether the columns are fixed
        self.nodes: dict[str, int] = {}
        self.identities: dict[str, str] = {}
        self.rejected: dict[int, str] = {}  # node -> reason
        self._chosen = columns is not None
        self._held: dict[str, list[str] | None] = {}
        self._peers: dict[int, Peer] = {}
        self._polled = float("-inf")
        self._asked: dict[str, int] = {}  # request id -> node
        self._retry: dict[int, tuple[float, float]] = {}  # node -> (when to ask again, patience)

    # ---- who is there ----

    @property
    def unknown(self) -> set[int]:
        """Connected nodes that have not replied to hello yet."""
        return self._online() - set(self.nodes.values()) - set(self.rejected)

    def online(self, name: str) -> int | None:
        """The node id of a client; None if it is not connected."""
        node = self.nodes.get(name)
        return node if node in self._online() else None

    def missing(self) -> list[str]:
        """Why expected nodes are absent, one phrase per node: first rejected, then offline, then silent ones."""
        online = self._online()
        rejected = [f"rejected: {why}" for node, why in sorted(self.rejected.items()) if node in online]
        names = {p.name for p in self._peers.values() if p.name and not p.online}
        offline = [f"{name} is admitted but not connected" for name in sorted(names - self._online_names())]
        silent = [f"{self._called(node)} is connected but has not answered yet" for node in sorted(self.unknown)]
        return [*rejected, *offline, *silent]

    def _online(self) -> set[int]:
        """Ids of the connected nodes."""
        return {p.node for p in self._peers.values() if p.online}

    def _online_names(self) -> set[str]:
        """Names of the connected nodes, by their key and by their own reply."""
        online = self._online()
        return {p.name for p in self._peers.values() if p.online} | {n for n, i in self.nodes.items() if i in online}

    def _called(self, node: int) -> str:
        """A node's admitted name, or "node" and its id."""
        peer = self._peers.get(node)
        return peer.name if peer is not None and peer.name else f"node {node}"

    # ---- hello ----

    def poll(self, wait: float = 0.0) -> None:
        """See who is connected (every `POLL` seconds at most), send hello to new nodes, read their replies.

        Waits at most `wait` seconds for replies to hello.
        """
        now = time.monotonic()
        due = now - self._polled >= POLL
        if due:
            self._peers = {p.node: p for p in self.transport.peers()}
            self._polled = now
            self._send_hello(now)
        self._asked = {i: n for i, n in self._asked.items() if n in self.unknown}
        if self._asked and (due or wait):
            for reply in self.transport.receive(list(self._asked), wait):
                self._read_hello(reply)

    def _send_hello(self, now: float) -> None:
        """Send hello to unknown nodes that are due."""
        due = [n for n in sorted(self.unknown) if now >= self._retry.get(n, (0.0, 0.0))[0]]
        if not due:
            return
        hello = wire.pack({"kind": "hello"})
        ids = self.transport.send([Request(n, hello) for n in due])
        for node, request in zip(due, ids):
            if request:
                self._asked[request] = node
                patience = 2 * self._retry.get(node, (0.0, self.retry / 2))[1]
                self._retry[node] = (now + patience, patience)

    def _read_hello(self, reply: Reply) -> None:
        """Accept or reject the node that a reply comes from."""
        node = self._asked.pop(reply.request, None)
        if node is None or node not in self.unknown:
            return
        if reply.lost:
            self._retry.pop(node, None)
            return
        try:
            if reply.error:
                raise SchemaError(f"{self._called(node)} reports an error: {reply.error}"[:300])
            self._accept(node, wire.unpack(reply.content, HELLO_BYTES).head)
        except Exception as error:  # whatever a node sends, it costs that node only
            self.rejected[node] = str(error)

    def _accept(self, node: int, head: dict[str, Any]) -> None:
        """Add a node by its reply to hello; SchemaError says why it is rejected."""
        name = head.get("name")
        identity = head.get("identity")
        if "refused" in head:
            raise SchemaError(f"{str(name)[:60]!r} refused to answer hello: {printable(str(head['refused'])[:300])}")
        if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable() and isinstance(identity, str)):
            raise SchemaError(f"{self._called(node)} has no printable name: set name = in its node.toml")
        self._check_key(node, name)
        if self.identities.get(name, identity) != identity:
            raise SchemaError(f"there are two nodes called {name!r}: the first stays, rename the other")
        held = _column_names(name, head.get("columns"))
        self._held[name] = None if held is None else [c for c in held if c not in self.apart]
        if self.settled:
            self._check_columns(name)
        self.identities[name], self.nodes[name] = identity, node

    def _check_key(self, node: int, name: str) -> None:
        """Refuse a node with another name than its key was admitted under."""
        admitted = self._peers[node].name if node in self._peers else ""
        if admitted and admitted != name:
            raise SchemaError(
                f"the node {name!r} uses the key admitted as {admitted!r}: admit the key again with --name {name}, "
                f"or set name = {admitted!r} in its node.toml"
            )

    def collect(self, wait: float, least: int) -> None:
        """Wait until `least` nodes have replied to hello and no reply is outstanding, at most `wait` seconds."""
        end = time.monotonic() + wait
        while time.monotonic() < end and (len(self.nodes) < least or self.unknown):
            self.poll(POLL)

    # ---- columns ----

    def settle(self) -> None:
        """Fix the columns: those chosen, or those of the first node by name; nodes with other columns are rejected."""
        if self.settled or not self.nodes:
            return
        if self.columns is None:
            self.columns = self._held[min(self.nodes)]
        self.settled = True
        for name in sorted(self.nodes):
            try:
                self._check_columns(name)
            except SchemaError as error:
                self.rejected[self.nodes.pop(name)] = str(error)

    def _check_columns(self, name: str) -> None:
        """SchemaError unless a client has the columns that are wanted, and no others if they were not chosen."""
        held = self._held[name]
        wanted = self.columns
        if (wanted is None) != (held is None):
            raise SchemaError(
                f"{name!r} and the other nodes do not all have column names: name the columns of all or none"
            )
        lacking = [c for c in wanted or () if c not in set(held or ())]
        if lacking:
            raise SchemaError(
                f"{name!r} has no column {lacking[0]!r} that may be used: {suggest(lacking[0], held or ())}{OFFERED}"
            )
        extra = [c for c in held or () if c not in set(wanted or ())]
        if extra and not self._chosen:
            raise SchemaError(
                f"{name!r} has a column {extra[0]!r} that other nodes lack: choose the columns with columns="
            )

    def check(self, name: str, node: int, head: dict[str, Any]) -> None:
        """SchemaError unless an answer comes from the node that was asked."""
        if node != self.nodes.get(name) or head.get("name") != name or head.get("identity") != self.identities[name]:
            raise SchemaError(f"the answer does not come from {name!r}")


def _column_names(name: str, columns: Any) -> list[str] | None:
    """The column names in a reply, None if the data have none; SchemaError if they are not a list of strings."""
    if columns is not None and not (isinstance(columns, list) and all(isinstance(c, str) for c in columns)):
        raise SchemaError(f"{name!r} sent column names that are not a list of strings")
    return columns
