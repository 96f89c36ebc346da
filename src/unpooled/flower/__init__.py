"""The same fit over Flower: `Flower(grid)` is a Federation, `client_app` answers for a node. The only package that imports flwr."""

import os

# Flower phones home and looks for updates unless told otherwise before it is imported
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from unpooled.flower.client_app import client_app  # noqa: E402
from unpooled.flower.federation import Flower  # noqa: E402

__all__ = ["Flower", "client_app"]
