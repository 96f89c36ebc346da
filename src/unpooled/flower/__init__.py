"""The same fit over Flower: `Flower(grid)` is a Federation, `client_app` answers for a node.

Only this package imports flwr, and only when a name of it is used.
"""

import os
from importlib import import_module
from typing import Any

# Flower phones home and looks for updates unless told otherwise before it is imported
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
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'unpooled.flower' has no attribute {name!r}")
