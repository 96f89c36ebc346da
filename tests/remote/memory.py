"""A transport in memory: nodes are `Site`s in this process. It can drop, delay, duplicate and reorder messages."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable

from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import Peer, Remote, Reply


class MemoryTransport:
    """Sites that answer when their message is sent; replies wait here until they are received.

    `away` holds nodes that are connected but whose messages are swallowed; `offline` those that are not connected.
    `keys` are the names that nodes' keys were admitted under.
    """

    def __init__(self, sites: Iterable[Site], keys: dict[int, str] | None = None):
        self.sites = {100 + i: site for i, site in enumerate(sites)}
        self.keys = keys or {}
        self.away: set[int] = set()
        self.offline: set[int] = set()
        self.seconds = 0.0  # how long a reply takes
        self.sent: list = []
        self._replies: dict[str, tuple[float, Reply]] = {}

    def peers(self):
        nodes = {**dict.fromkeys(self.sites, ""), **self.keys}
        return [Peer(n, name, n in self.sites and n not in self.offline) for n, name in nodes.items()]

    def send(self, requests):
        return [self._post(r) for r in requests]

    def _post(self, request) -> str:
        self.sent.append(request)
        name = f"m{len(self.sent)}"
        if request.node not in self.away | self.offline:
            content = self.sites[request.node].reply(request.message, request.private, request.letter)
            self.keep(name, Reply(name, request.node, content))
        return name

    def keep(self, name: str, reply: Reply) -> None:
        self._replies[name] = (time.monotonic() + self.seconds, reply)

    def receive(self, ids, wait):
        end = time.monotonic() + wait
        while True:
            found = [i for i in ids if i in self._replies and time.monotonic() >= self._replies[i][0]]
            if found or time.monotonic() >= end:
                return [self._replies.pop(i)[1] for i in found]
            time.sleep(0.005)

    def problem(self):
        return ""


class UnreliableTransport(MemoryTransport):
    """Drops, loses, duplicates and reorders messages at random, from a seed."""

    def __init__(self, sites, seed: int = 0, share: float = 0.2, **more):
        super().__init__(sites, **more)
        self.random, self.share = random.Random(seed), share

    def _post(self, request):
        if self.random.random() < self.share:  # the request is dropped, and nobody says so
            self.sent.append(request)
            return f"m{len(self.sent)}"
        if self.random.random() < self.share:  # it arrives twice
            super()._post(request)
        return super()._post(request)

    def keep(self, name, reply):
        if self.random.random() < self.share:  # the reply is lost, and the transport knows
            reply = Reply(name, reply.node, lost=True)
        super().keep(name, reply)

    def receive(self, ids, wait):
        found = super().receive(ids, wait)
        self.random.shuffle(found)
        return found


class OpenSite(Site):
    """A site whose state the test can see where `Local` has it: on the client."""

    def reply(self, message: bytes, private: str = "", letter: bytes = b"") -> bytes:
        reply = super().reply(message, private, letter)
        self.source.client.state = self.state
        return reply


def sites_of(clients) -> list[OpenSite]:
    return [OpenSite(c.name, Source(c), {}) for c in clients]


def memory(clients, **options) -> Remote:
    return Remote(MemoryTransport(sites_of(clients)), **options)


def unreliable(clients, **options) -> Remote:
    return Remote(UnreliableTransport(sites_of(clients)), **{"retry": 0.05, **options})
