"""The ClientApp that answers for a site: registered questions only. State stays with the site, or in Flower's Context in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from unpooled import wire
from unpooled.client import Client
from unpooled.flower.records import from_records, to_records
from unpooled.node.site import Site, Source
from unpooled.tree import SchemaError


def respond(site: Site, message: Message) -> Message:
    """The reply to one of Flower's messages, whatever it holds."""
    try:
        content = from_records(message.content)
    except (SchemaError, ValueError) as error:
        return Message(to_records(wire.pack({"name": site.name, "refused": str(error)[:500]})), reply_to=message)
    return Message(to_records(site.reply(content)), reply_to=message)


def client_app(find: Callable[[Context], Site | Client]) -> ClientApp:
    """An app for `flwr run` and for simulations: `find(context)` gives the site, or the client whose rows it has."""
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        found = find(context)
        site = found if isinstance(found, Site) else Site(found.name, Source(found), ContextVault(context))
        return respond(site, message)

    return app


class ContextVault(MutableMapping[str, bytes]):
    """A vault in Flower's Context, which a simulation keeps for each client; a SuperNode's is lost with its process."""

    def __init__(self, context: Context):
        state = context.state
        if "unpooled" not in state:
            state["unpooled"] = ConfigRecord({})
        self.record: Any = state["unpooled"]

    def __getitem__(self, key: str) -> bytes:
        return self.record[key]

    def __setitem__(self, key: str, content: bytes) -> None:
        self.record[key] = content

    def __delitem__(self, key: str) -> None:
        del self.record[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.record))

    def __len__(self) -> int:
        return len(self.record)
