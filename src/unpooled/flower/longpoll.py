"""Long polling at the SuperLink: a request for messages is held until there are some, so waiting takes few requests.

Waiting is asynchronous and takes neither a thread nor a core, however many nodes wait. A request says in a header how
long it may be held; requests without the header (stock SuperNodes) are answered at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest

WAIT_HEADER = "x-unpooled-wait"  # seconds
MAX_WAIT = 20.0  # Flower's clients give up after 30
FLEET, RUNTIME = "/v1/fleet/pull-messages", "/v1/runtime/pull-messages"
COORDINATOR = 0  # the coordinator's key among those who wait; a node's key is its id
KEPT_REPLIES = 100_000  # ids of replies that are remembered, at most


class Wake(asyncio.Event):
    """An event that wakes a waiting request; `disconnected` is set once its client has closed the connection."""

    disconnected = False


class Mailboxes:
    """Knows, without asking Flower, whether there may be messages for a node or replies for the coordinator."""

    def __init__(self) -> None:
        """No messages yet, and nobody who waits."""
        self._lock = threading.Lock()
        self._sent: dict[int, int] = defaultdict(int)  # node -> messages sent to it so far
        self._empty: dict[int, int] = {}  # node -> messages sent to it when it last found none
        self._replies: dict[str, None] = {}  # ids of messages whose replies wait for the coordinator
        self._waiting: dict[int, set[Wake]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- what handlers report, from their threads ----

    def runtime_push(self, push: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the handler of the coordinator's messages: they wake the nodes they are for."""

        @wraps(push)
        def pushed(*args: Any, **kwargs: Any) -> Any:
            """Push, count the messages per node and wake these nodes."""
            request = signature(push).bind(*args, **kwargs).arguments["request"]
            nodes = [m.metadata.dst_node_id for m in request.messages_list]
            response = push(*args, **kwargs)
            with self._lock:
                for node in nodes:
                    self._sent[node] += 1
            self._wake(set(nodes))
            return response

        return pushed

    def fleet_push(self, push: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the handler of nodes' replies: they wake the coordinator."""

        @wraps(push)
        def pushed(*args: Any, **kwargs: Any) -> Any:
            """Push, remember which messages have replies and wake the coordinator."""
            request = signature(push).bind(*args, **kwargs).arguments["request"]
            ids = [m.metadata.reply_to_message_id for m in request.messages_list]
            response = push(*args, **kwargs)
            with self._lock:
                self._replies.update(dict.fromkeys(ids))
                while len(self._replies) > KEPT_REPLIES:
                    self._replies.pop(next(iter(self._replies)))
            self._wake({COORDINATOR})
            return response

        return pushed

    def fleet_pull(self, pull: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the handler of nodes' pulls: a node that finds no message may wait until one is sent to it."""

        @wraps(pull)
        def pulled(*args: Any, **kwargs: Any) -> Any:
            """Pull, and note up to which message the node has found none."""
            node = signature(pull).bind(*args, **kwargs).arguments["request"].node.node_id
            with self._lock:
                sent = self._sent.get(node, 0)
            response = pull(*args, **kwargs)
            if not response.messages_list:
                with self._lock:
                    self._empty[node] = sent
            return response

        return pulled

    def runtime_pull(self, pull: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the handler of the coordinator's pulls: delivered replies are no longer waited for."""

        @wraps(pull)
        def pulled(*args: Any, **kwargs: Any) -> Any:
            """Pull, and forget the replies that were delivered."""
            response = pull(*args, **kwargs)
            with self._lock:
                for message in response.messages_list:
                    self._replies.pop(message.metadata.reply_to_message_id, None)
            return response

        return pulled

    def _wake(self, keys: set[int]) -> None:
        """Wake those who wait under these keys; may be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._set, keys)

    def _set(self, keys: set[int]) -> None:
        """Set the events of these keys, in the event loop."""
        for key in keys:
            for event in self._waiting.get(key, ()):
                event.set()

    # ---- waiting, in the event loop ----

    def may_have(self, key: int, ids: frozenset[str]) -> bool:
        """Whether there may be a message for a node, or a reply to one of `ids`."""
        with self._lock:
            if key == COORDINATOR:
                return not self._replies.keys().isdisjoint(ids)
            return self._empty.get(key, -1) != self._sent.get(key, 0)

    async def wait(self, key: int, ids: frozenset[str], seconds: float, wake: Wake) -> None:
        """Return when there may be something, after `seconds`, or when the client has disconnected."""
        self._loop = asyncio.get_running_loop()
        end = self._loop.time() + seconds
        self._waiting[key].add(wake)
        try:
            while not (wake.disconnected or self.may_have(key, ids)):
                await asyncio.wait_for(wake.wait(), end - self._loop.time())
                wake.clear()
        except TimeoutError:
            pass
        finally:
            self._waiting[key].discard(wake)
            if not self._waiting[key]:
                del self._waiting[key]


class LongPoll:
    """ASGI middleware that holds requests for messages.

    Parameters
    ----------
    app : ASGI application
        The SuperLink.
    mailboxes : Mailboxes
        Knows whether there is something.
    """

    def __init__(self, app: Any, mailboxes: Mailboxes):
        """Hold requests for messages ahead of `app` until `mailboxes` has some."""
        self.app, self.mailboxes = app, mailboxes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hold a request for messages, then pass it on; other requests pass at once."""
        seconds = _seconds(scope)
        if not seconds:
            await self.app(scope, receive, send)
            return
        body = await _body(receive)
        key, ids = _who(scope["path"], body)
        wake = Wake()
        watcher = asyncio.create_task(_watch(receive, wake))
        try:
            await self.mailboxes.wait(key, ids, seconds, wake)
        finally:
            watcher.cancel()
        if not wake.disconnected:  # a message must not be handed to a connection that is closed
            await self.app(scope, _replay(body, receive), send)


def _seconds(scope: Any) -> float:
    """How long a request may be held; 0 for requests that are not for messages."""
    if scope["type"] != "http" or scope["path"] not in (FLEET, RUNTIME):
        return 0.0
    try:
        wanted = float(dict(scope["headers"]).get(WAIT_HEADER.encode(), b"0"))
    except ValueError:
        return 0.0
    return min(max(wanted, 0.0), MAX_WAIT) if wanted == wanted else 0.0


async def _body(receive: Any) -> bytes:
    """The whole body of a request."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(parts)


def _who(path: str, body: bytes) -> tuple[int, frozenset[str]]:
    """(key under which a request waits, message ids whose replies it waits for); Flower checks later whether it may."""
    try:
        if path == FLEET:
            return PullMessagesRequest.FromString(body).node.node_id, frozenset()
        return COORDINATOR, frozenset(PullAppMessagesRequest.FromString(body).message_ids)
    except Exception:  # not a protobuf: Flower refuses it
        return -1, frozenset()


async def _watch(receive: Any, wake: Wake) -> None:
    """Wait until the client disconnects, then wake its request."""
    while (await receive())["type"] != "http.disconnect":
        pass
    wake.disconnected = True
    wake.set()


def _replay(body: bytes, receive: Any) -> Any:
    """A `receive` function that gives the body once more."""
    sent = False

    async def replayed() -> Any:
        """The body at the first call, then what the connection gives."""
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
