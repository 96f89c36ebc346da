"""A question that costs nothing but its journey: the benchmark's nodes import it by name."""

from typing import NamedTuple

from unpooled.arrays import Array, Float
from unpooled.client import Client, client


class Down(NamedTuple):
    x: Float[Array, "d"]


@client(batched=False)
def big(down: Down, client: Client) -> Down:
    return Down(down.x + client.w.sum())
