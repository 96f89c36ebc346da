"""The clients' side: a real node where the SuperNode names one, else a simulated client with rows of its own."""

import numpy as np
from flwr.app import Context

from unpooled.client import Client
from unpooled.flower import client_app
from unpooled.flower.app import configured
from unpooled.node.site import Site


def find(context: Context) -> Client | Site:
    if "unpooled" in context.node_config:  # flower-supernode --node-config 'unpooled="/path/to/node.toml"'
        return configured(context)
    number = int(context.node_config["partition-id"])
    rng = np.random.default_rng(number)
    return Client(f"client-{number:03}", rng.normal([[0.0, 0.0]], 1.0, (100, 2)) + 6 * rng.integers(0, 3, (100, 1)))


app = client_app(find)
