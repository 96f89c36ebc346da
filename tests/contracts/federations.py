"""Every federation that must obey the laws: a new engine or layer joins by adding one line."""

from flower_grid import flower
from memory import memory, unreliable

from unpooled.layers.faults import Faults
from unpooled.layers.meter import Metered
from unpooled.local import Local

FEDERATIONS = {
    "merged": lambda clients: Local(clients, threads=1),
    "merged, threads": lambda clients: Local(clients, threads=3),
    "stacked": lambda clients: Local(clients, mode="stacked", threads=1),
    "stacked, threads": lambda clients: Local(clients, mode="stacked", threads=3),
    "one by one": lambda clients: Local(clients, mode="one by one", threads=1),
    "one by one, threads": lambda clients: Local(clients, mode="one by one", threads=3),
    "metered": lambda clients: Metered(Local(clients)),
    "flower": flower,
    "in memory": memory,
    "in memory, unreliable": unreliable,
    "faults, none due": lambda clients: Faults(Local(clients)),
}
