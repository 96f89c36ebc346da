"""A federation whose clients are nodes reached through messages, whatever carries them.

Per question one message goes down to each node and one reply comes up. Nothing here knows Flower: an engine supplies a
`Transport` (who is connected, send, receive), and `Remote` does the asking, waiting and retrying.

Read in this order: `transport` (what an engine must supply), `federation` (`Remote`, the Federation), `roster` (names
and columns of nodes), `run` (which state each node continues from), `exchange` (one question and its answers), `link`
and `keys` (the files of a link), `engines` (the one place that chooses an engine).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpooled.remote.federation import Remote
    from unpooled.remote.transport import Peer, Reply, Request, Transport

_PUBLIC = {"Remote": "federation", **dict.fromkeys(("Peer", "Reply", "Request", "Transport"), "transport")}

__all__ = ["Peer", "Remote", "Reply", "Request", "Transport"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the server needs `link` and `keys` alone, which load quickly."""
    if name in _PUBLIC:
        return getattr(import_module(f"unpooled.remote.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'unpooled.remote' has no attribute {name!r}")
