"""Flower as an engine: `Flower(grid)` is a Federation, `client_app` answers for a node.

Only this package imports flwr, and only when one of its names is used. Read in this order: `transport` (messages
between coordinator and nodes), `app` (a node's answer to a Flower message), `attach` (the coordinator's connection),
`fleet` and `worker` (a node's process), `server` and `superlink` (the SuperLink, with `guard`, `longpoll` and
`bundle`; `bounded` limits the head of a request), `clients` and `objects` (requests that are repeated, objects that come late), `engine`
(what commands call).
"""

import os
from importlib import import_module
from typing import Any

# Flower sends telemetry and looks for updates unless these are set before it is imported
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

_PUBLIC = {
    "Flower": "unpooled.flower.transport",
    "Link": "unpooled.remote.link",
    "client_app": "unpooled.flower.app",
    "connect": "unpooled.flower.attach",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    """Import a name, and with it flwr, when it is first used."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'unpooled.flower' has no attribute {name!r}")
