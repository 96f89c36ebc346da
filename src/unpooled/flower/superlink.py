"""Flower's SuperLink, guarded and patient: `python -m unpooled.flower.superlink TOKEN_FILE [flower-superlink options]`.

Flower serves nodes, runs and tasks on one port, and asks only nodes for a key. Here every path but the nodes' own asks for
the token. And who looks for messages when there are none is kept waiting for a second instead of coming again and again:
most of a short round was spent on such requests, each with its signature.
"""

from __future__ import annotations

import hmac
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import flwr.superlink.extensions as extensions
from flwr.superlink.cli.flower_superlink import flower_superlink
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.middleware import Middleware

from unpooled.remote.link import TOKEN_HEADER

OPEN = ("/v1/fleet/", "/health")  # fleet: Flower checks the node's signature there


class Guard:
    """ASGI middleware: 401 without the token."""

    def __init__(self, app: Any, token: str):
        self.app, self.token = app, token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(OPEN):
            shown = dict(scope["headers"]).get(TOKEN_HEADER.encode(), b"")
            if not hmac.compare_digest(shown, self.token):
                await send(
                    {"type": "http.response.start", "status": 401, "headers": [(b"content-type", b"text/plain")]}
                )
                await send({"type": "http.response.body", "body": b"this door asks for the link's token"})
                return
        await self.app(scope, receive, send)


class Patience:
    """Holds a request for messages until there are some: for `seconds`, and for `seats` requests at a time."""

    def __init__(self, seconds: float = 1.0, seats: int = 24):
        self.seconds, self.seats = seconds, threading.BoundedSemaphore(seats)  # Flower has 40 threads for all requests
        self.news, self.count = threading.Condition(), 0

    def announcing(self, push: Any) -> Any:
        def pushed(*args: Any, **kwargs: Any) -> Any:
            result = push(*args, **kwargs)
            with self.news:
                self.count += 1
                self.news.notify_all()
            return result

        return pushed

    def holding(self, pull: Any) -> Any:
        def pulled(*args: Any, **kwargs: Any) -> Any:
            end = time.monotonic() + self.seconds
            seen, result = self.count, pull(*args, **kwargs)
            if result.messages_list or not self.seats.acquire(blocking=False):
                return result
            try:
                while not result.messages_list and time.monotonic() < end:
                    with self.news:
                        self.news.wait_for(lambda: self.count != seen, timeout=end - time.monotonic())  # noqa: B023
                    seen, result = self.count, pull(*args, **kwargs)
            finally:
                self.seats.release()
            return result

        return pulled


def be_patient(patience: Patience) -> None:
    """Put patience into Flower's handlers of messages: nodes wait for the coordinator's, the coordinator for theirs."""
    places: list[Any] = [fleet_handlers, runtime_handlers]
    for place in places:
        place.pull_messages = patience.holding(place.pull_messages)
        place.push_messages = patience.announcing(place.push_messages)


def let_back_in(activate: Any) -> Any:
    """A node that was killed and comes back with its key is let in at once, not only when its old heartbeat has lapsed."""

    def activated(request: Any, state: Any) -> Any:
        known = state.get_node_id_by_public_key(request.public_key)
        if known is not None:
            state.deactivate_node(known)
        return activate(request=request, state=state)

    return activated


def end_with(parent: int) -> None:
    """End this process when its parent is gone, however that ended: no SuperLink is left behind."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    token = Path(sys.argv[1]).read_text()
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    be_patient(Patience())
    handlers: Any = fleet_handlers
    handlers.activate_node = let_back_in(handlers.activate_node)
    extensions.get_middleware = lambda: (Middleware(Guard, token=token),)
    sys.argv = ["flower-superlink", *sys.argv[2:]]
    flower_superlink()


if __name__ == "__main__":
    main()
