"""HTTP requests whose head is bounded: a connection that sends more before its headers end is answered 400 and closed.

A body without a key is refused by `guard`, but only once the headers have been read. uvicorn's parser takes request lines and headers
of any length, and keeps them in memory: 600 MB of headers would be 600 MB of memory, without a key.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD = 64 * 2**10  # bytes of request line and headers together, at most; h11, the other parser, has the same bound


class Bounded(AutoHTTPProtocol):  # type: ignore[misc]  # which of two classes it is, uvicorn says when it runs
    """uvicorn's HTTP protocol with a bound on what comes before a body."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0  # since the last request ended, while no headers have ended

    def data_received(self, data: bytes) -> None:
        """Parse what came; count it while the head of a request is not complete."""
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD:
            self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        """The head ends."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body ends: what follows is the head of the next request."""
        super().on_message_complete()
        self._in_head = True
        self._head_bytes = 0
