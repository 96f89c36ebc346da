"""Who may send what to the SuperLink: the coordinator's paths need its token, large bodies need a node's signature.

Flower serves nodes, runs and tasks on one port and authenticates nodes only after it has read the whole body. Here a
body of more than `SMALL` bytes is read only if its sender has authenticated.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from starlette.concurrency import run_in_threadpool

from unpooled.remote.link import TOKEN_HEADER

OPEN = ("/v1/fleet/", "/health")  # paths without the token; Flower checks the node's signature there
SMALL = 64 * 2**10  # largest body, in bytes, of an unknown sender
LARGE = 64 * 2**20  # largest body, in bytes, of a node: Flower cuts arrays into chunks of 20 MB


class Guard:
    """ASGI middleware: 401 without the token, 411 or 413 for a body that its sender may not send.

    Parameters
    ----------
    app : ASGI application
        The SuperLink.
    token : str
        The coordinator's secret.
    """

    def __init__(self, app: Any, token: str):
        """Check requests ahead of `app`; `token` is the coordinator's."""
        self.app = app
        self.token = token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer it with the refusal."""
        refusal = await self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        status, reason = refusal
        headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reason})

    async def _refusal(self, scope: Any) -> tuple[int, bytes] | None:
        """(status, reason) if a request is refused; None if it may pass."""
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        if not scope["path"].startswith(OPEN):
            given = headers.get(TOKEN_HEADER, "").encode("latin-1")
            return None if hmac.compare_digest(given, self.token) else (401, b"this path requires the link's token")
        size = headers.get("content-length", "0" if scope["method"] in ("GET", "HEAD") else "")
        if "transfer-encoding" in headers or not size.isdigit():
            return 411, b"a request needs a content-length"
        if int(size) <= SMALL:
            return None
        if int(size) > LARGE:
            return 413, b"the body is too large"
        known = await run_in_threadpool(_is_signed, headers, scope["app"])
        return None if known else (413, b"a body of this size requires an admitted key")


def _is_signed(headers: Mapping[str, str], app: Any) -> bool:
    """Whether the headers carry a fresh signature by a registered node's key."""
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        timestamp = headers[TIMESTAMP_HEADER]
        age = (now() - datetime.fromisoformat(timestamp)).total_seconds()
        fresh = -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
        if not fresh or app.state.linkstate_factory.state().get_node_id_by_public_key(key) is None:
            return False
        return verify_signature(bytes_to_public_key(key), timestamp.encode("ascii"), signature)
    except (KeyError, ValueError, TypeError):
        return False
