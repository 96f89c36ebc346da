"""The ClientApp that answers for a site. State stays with the site, or in Flower's Context in a simulation.

Sends one reply per message: the site's answer or its refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from unpooled import wire
from unpooled.client import Client
from unpooled.flower.transport import from_records, letter_of, to_records
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.tree import SchemaError


def respond(site: Site, message: Message) -> Message:
    """The site's reply to a Flower message; a refusal if the message cannot be read."""
    try:
        content = from_records(message.content)
        letter = letter_of(message.content)
        reply = site.reply(content, message.metadata.group_id, letter)
    except (SchemaError, ValueError) as error:
        reply = wire.pack({"name": site.name, "refused": str(error)[:500]})
    return Message(to_records(reply), reply_to=message)


def client_app(find: Callable[[Context], Site | Client]) -> ClientApp:
    """A ClientApp for `flwr run` and for simulations.

    Parameters
    ----------
    find : callable
        Called with Flower's Context for every message; returns the Site that answers, or the Client whose rows are
        used.

    Returns
    -------
    flwr.clientapp.ClientApp
        Answers registered questions only.
    """
    app = ClientApp()
    app.query()(Answers(find))
    return app


class Answers:
    """The function that answers messages; a class and not a closure, since a simulation pickles the app."""

    def __init__(self, find: Callable[[Context], Site | Client]):
        """Answer for the site that `find` gives for a context."""
        self.find = find

    def __call__(self, message: Message, context: Context) -> Message:
        """The reply of the site or client that `find` returns."""
        found = self.find(context)
        return respond(found if isinstance(found, Site) else _simulated(found, context), message)


def _simulated(client: Client, context: Context) -> Site:
    """A site for a client in a simulation.

    It keeps no answers: the Context is sent with every message, so a repeated question is computed again.
    """
    return Site(client.name, Source(client), ContextVault(context), keep_answer=False)


class ContextVault(MutableMapping[str, bytes]):
    """A vault in Flower's Context, which a simulation keeps per client; a SuperNode's is lost with its process."""

    def __init__(self, context: Context):
        """A vault in the state of this context."""
        state = context.state
        if "unpooled" not in state:  # two messages may arrive at once: both must make the same identity
            state["unpooled"] = ConfigRecord({"identity": f"{context.node_id:x}".encode()})
        self.record: Any = state["unpooled"]

    def __getitem__(self, key: str) -> bytes:
        """The bytes kept under `key`."""
        return self.record[key]

    def __setitem__(self, key: str, content: bytes) -> None:
        """Keep bytes under `key`."""
        self.record[key] = content

    def __delitem__(self, key: str) -> None:
        """Forget what is kept under `key`."""
        del self.record[key]

    def __iter__(self) -> Iterator[str]:
        """All keys."""
        return iter(list(self.record))

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self.record)


# ---- the app that a run names; nodes behind stock SuperNodes load it for every message ----


def configured(context: Context) -> Site:
    """The site of the node.toml that the SuperNode's --node-config gives as `unpooled`."""
    from unpooled.node.config import read, site

    path = context.node_config.get("unpooled")
    if not isinstance(path, str):
        raise SchemaError("start the SuperNode with --node-config 'unpooled=\"/path/to/node.toml\"'")
    return site(read(Path(path)))


client = client_app(configured)
server = ServerApp()


@server.main()
def _server(grid: Grid, context: Context) -> None:
    """Refuse to run: the server's side is our own process."""
    raise RuntimeError("this app's server side is the process that called fit")
