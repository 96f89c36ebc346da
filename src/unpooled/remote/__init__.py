"""A federation whose clients are nodes reached through messages, whatever carries them.

One message goes down to each node and one reply comes up per question. Nothing here knows Flower: an engine supplies a
`Transport` (who is connected, send, receive) and `Remote` does the asking, waiting and retrying.

Read in this order: `transport` (what an engine must supply), `federation` (`Remote`, the Federation), `roster` (names and
columns of nodes), `run` (what nodes know of a run), `exchange` (one question on its way), `link` and `keys` (the files of a
link), `engines` (the one place that chooses an engine).
"""

from unpooled.remote.federation import Remote
from unpooled.remote.transport import Peer, Reply, Request, Transport

__all__ = ["Peer", "Remote", "Reply", "Request", "Transport"]
