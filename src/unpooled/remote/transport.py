"""What an engine must supply: who is connected, sending messages, receiving replies. The bytes are made elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Peer(NamedTuple):
    """A node as the transport knows it.

    Parameters
    ----------
    node : int
        The transport's id of the node. It may change when the node reconnects.
    name : str, default=""
        The name its key was admitted under; empty if the transport does not authenticate nodes.
    online : bool, default=True
        Whether it is connected now.
    """

    node: int
    name: str = ""
    online: bool = True


class Request(NamedTuple):
    """One message to one node.

    Parameters
    ----------
    node : int
        The transport's id of the node.
    message : bytes
        What all nodes get. A transport may send equal messages once.
    private : str, default=""
        What this node alone gets, as short JSON.
    letter : bytes, default=b""
        What this node alone gets from a layer; it may be large.
    """

    node: int
    message: bytes
    private: str = ""
    letter: bytes = b""


class Reply(NamedTuple):
    """The reply to a request, or why there is none.

    Parameters
    ----------
    request : str
        The id that `Transport.send` returned for the request.
    node : int
        The node that the reply comes from, as the transport authenticates it.
    content : bytes, default=b""
        The bytes the node sent.
    error : str, default=""
        Why there is no content, if the transport reports an error.
    lost : bool, default=False
        Whether the request or its reply was lost on the way. This is not the node's fault: it is asked again.
    """

    request: str
    node: int
    content: bytes = b""
    error: str = ""
    lost: bool = False


class Transport(Protocol):
    """Carries messages between a coordinator and its nodes.

    Messages may be lost, delayed, duplicated or reordered: `Remote` asks again, and a node gives the same answer to the
    same question. A transport that knows of a loss reports it with `Reply(lost=True)`, which saves waiting.
    """

    def peers(self) -> list[Peer]:
        """Every node the transport knows, connected or not."""
        ...

    def send(self, requests: Sequence[Request]) -> list[str]:
        """Send the requests; returns one id per request, empty for one that could not be sent."""
        ...

    def receive(self, ids: Sequence[str], wait: float) -> list[Reply]:
        """Replies to these requests; waits at most `wait` seconds for the first one.

        It may take longer than `wait` while a reply is being transferred.
        """
        ...

    def problem(self) -> str:
        """What is wrong with the connection itself, such as an expired certificate; empty if nothing is known."""
        ...
