"""Serve a live page on loopback until the command is stopped: the page, and server-sent events with the parts that changed."""

from __future__ import annotations

import asyncio
import json
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse
from starlette.routing import Route

from unpooled.errors import RunError, UnpooledError
from unpooled.pages.guard import Guard, new_token
from unpooled.pages.live import Page, document, mark_of
from unpooled.report import markup

LOOK_EVERY = 1.0  # seconds between two looks at whether something has changed


class Server:
    """A live page and its address.

    Parameters
    ----------
    page : Page
        What is shown.
    routes : sequence of Route, default=()
        Further addresses below the token, for forms and other pages.
    port : int, default=0
        Where to listen on 127.0.0.1; 0 for any free port.
    look_every : float, default=1.0
        Seconds between two looks for changes.

    Attributes
    ----------
    address : str
        What to open in a browser, with the token.
    """

    def __init__(self, page: Page, routes: Sequence[Route] = (), port: int = 0, look_every: float = LOOK_EVERY):
        """Listen on loopback, on `port` or any free one, with a fresh token in the address."""
        self.page, self.look_every = page, look_every
        self._socket = _listen(port)
        self.port = self._socket.getsockname()[1]
        self.token = new_token()
        self.address = f"http://127.0.0.1:{self.port}/{self.token}/"
        own = [Route("/", self._show), Route("/events", self._events)]
        app = Guard(Starlette(routes=[*own, *routes]), self.port, self.token)
        settings = uvicorn.Config(
            app,
            log_level="critical",  # a log would hold the token
            access_log=False,
            server_header=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = uvicorn.Server(settings)

    def run(self) -> None:
        """Serve until Ctrl-C or `stop`."""
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self.close()

    def stop(self) -> None:
        """End `run` from another thread."""
        self._uvicorn.should_exit = True

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()

    async def _show(self, request: Request) -> HTMLResponse:
        """The whole page."""
        parts = await run_in_threadpool(self._parts)
        lead = getattr(self.page, "lead", "")
        return HTMLResponse(document(self.page.title, lead, parts, request.scope["nonce"]))

    def _parts(self) -> dict[str, str]:
        """The parts of the page, and above them what is wrong with a file that it needs."""
        try:
            return {"problem": "", **self.page.parts()}
        except UnpooledError as error:
            return {"problem": markup.mark(f"This page cannot be shown in full: {error}")}
        except Exception as error:  # a defect of the page: named here, with its place on standard error
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
            return {
                "problem": markup.mark(f"This page cannot be shown because of an error in unpooled itself ({reason})")
            }

    async def _events(self, request: Request) -> StreamingResponse:
        """A stream of the parts that changed."""
        return StreamingResponse(self._changes(request), media_type="text/event-stream")

    async def _changes(self, request: Request) -> AsyncIterator[str]:
        """The parts that differ from those sent before, whenever the page's stamp has changed."""
        sent: dict[str, str] = {}
        stamp: object = object()
        yield ": here\n\n"
        while not await request.is_disconnected():
            now = await run_in_threadpool(self.page.stamp)
            if now != stamp:
                stamp = now
                parts = await run_in_threadpool(self._parts)
                new = {name: html for name, html in parts.items() if sent.get(name) != html}
                sent = parts
                if new:
                    yield f"data: {json.dumps({name: [mark_of(html), html] for name, html in new.items()})}\n\n"
            await asyncio.sleep(self.look_every)


def _listen(port: int) -> socket.socket:
    """A socket on 127.0.0.1, which other machines cannot reach."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise RunError(f"port {port} cannot be used ({error.strerror}): choose another with --port") from error
    listener.listen(64)
    return listener


def announce(server: Server, say: Callable[[str], Any], open_browser: bool) -> None:
    """Print the address, and open it in a browser where that is wanted."""
    say(server.address)
    if open_browser:
        import webbrowser

        webbrowser.open(server.address)
