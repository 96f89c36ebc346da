"""A question that costs nothing but its journey: the benchmark's nodes import it by name."""

from typing import NamedTuple

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client


class Down(NamedTuple):
    x: Float[Array, "d"]


@client("big_question.big", SUM, batched=False)
def big(down: Down, client: Client) -> Down:
    return Down(down.x + client.w.sum())
