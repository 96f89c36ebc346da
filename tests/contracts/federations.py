"""Every federation that must obey the laws: a new engine or layer joins by adding one line."""

from flower_grid import flower
from memory import memory, unreliable

from unpooled.layers.compression import Compressed
from unpooled.layers.faults import Faults
from unpooled.layers.meter import Metered
from unpooled.local import Local

ENGINES = {
    "merged": lambda clients: Local(clients, threads=1),
    "merged, threads": lambda clients: Local(clients, threads=3),
    "stacked": lambda clients: Local(clients, mode="stacked", threads=1),
    "stacked, threads": lambda clients: Local(clients, mode="stacked", threads=3),
    "one by one": lambda clients: Local(clients, mode="one by one", threads=1),
    "one by one, threads": lambda clients: Local(clients, mode="one by one", threads=3),
    "flower": flower,
    "in memory": memory,
    "in memory, unreliable": unreliable,
}
LAYERS = {"metered": Metered, "faults, none due": Faults, "compressed": Compressed}
INSIDE_LAYERS = ("merged", "one by one, threads", "flower", "in memory")

FEDERATIONS = ENGINES | {
    f"{layer}, {engine}": lambda clients, layer=layer, engine=engine: LAYERS[layer](ENGINES[engine](clients))
    for layer in LAYERS
    for engine in INSIDE_LAYERS
}
