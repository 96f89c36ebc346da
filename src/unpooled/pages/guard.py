"""Who may see a page: a browser on this machine that was given the address with its token.

Each request is checked for its Host (so that no other web site can reach the page through a name that it points at this machine), for the
token in its path (compared in constant time) and, if it changes something, for where it comes from. Every answer forbids caching,
framing and anything from outside.
"""

from __future__ import annotations

from secrets import compare_digest, token_urlsafe
from typing import Any

Scope = dict[str, Any]
SEEN = "This address is not complete: open the one that the command printed, with its token."


def new_token() -> str:
    """A random token for an address."""
    return token_urlsafe(24)


class Guard:
    """An ASGI app around another, which sees only requests that may be answered.

    Parameters
    ----------
    app : ASGI app
        What answers.
    port : int
        The port that the server listens at.
    token : str
        The first part of every path.
    """

    def __init__(self, app: Any, port: int, token: str):
        """Let requests to `app` through when they come to this port and carry the token."""
        self.app, self.token = app, token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer one request: 404 or 403 in plain text, or what the app says, with headers that close the page in."""
        if scope["type"] != "http":
            return
        headers = {k.decode("latin1").lower(): v.decode("latin1") for k, v in scope["headers"]}
        status = self._refused(scope, headers)
        if status:
            await _plain(send, status)
            return
        rest = "/" + scope["path"].split("/", 2)[2]
        nonce = token_urlsafe(16)
        inner = {**scope, "path": rest, "raw_path": rest.encode(), "nonce": nonce}
        await self.app(inner, receive, _with_headers(send, nonce))

    def _refused(self, scope: Scope, headers: dict[str, str]) -> int:
        """The status of a request that is not answered; 0 for one that is."""
        host = headers.get("host", "")
        if host not in self.hosts:
            return 421
        given = scope["path"].split("/", 2)
        if len(given) < 3 or not compare_digest(given[1].encode(), self.token.encode()):
            return 404
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405
        if scope["method"] == "POST" and headers.get("origin") != f"http://{host}":
            return 403
        return 0


def content_policy(nonce: str) -> str:
    """Nothing from outside, no script and no style but the page's own."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _headers(nonce: str) -> list[tuple[bytes, bytes]]:
    """Headers of every answer: no caching, no framing, no outside request."""
    values = {
        "cache-control": "no-store",
        "content-security-policy": content_policy(nonce),
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    return [(k.encode(), v.encode()) for k, v in values.items()]


def _with_headers(send: Any, nonce: str) -> Any:
    """`send` with the headers added to the start of an answer."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_headers(nonce)]}
        await send(message)

    return sending


async def _plain(send: Any, status: int) -> None:
    """Answer with a status and one sentence that tells nothing."""
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [(b"content-type", b"text/plain; charset=utf-8")],
    }
    await _with_headers(send, "none")(start)
    await send({"type": "http.response.body", "body": SEEN.encode()})
