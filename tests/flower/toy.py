"""A small model of our own for tests of the network: it sums, draws, and keeps state at the clients in every round."""

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import GATHER, STEP, SUM, TELL, Client, client
from unpooled.estimator import Estimator


class Centre(NamedTuple):
    mean: Float[Array, "d"]


class Moments(NamedTuple):
    n: Float[Array, "", ">=0 rows"]
    x: Float[Array, "d"]
    drift: Float[Array, "d"]


@client("toy.total", SUM, adds=True)
def total(centre: Centre, client: Client) -> Moments:
    x = client.x - centre.mean
    return Moments(client.w.sum(-1), x.sum(-2), np.zeros(x.shape[-1]))


@client("toy.wander", SUM, batched=False)
def wander(centre: Centre, client: Client) -> Moments:
    """A walk that each client keeps to itself; one step a round, from its own draws."""
    walk = client.state.get("walk", np.zeros(len(centre.mean))) + client.rng.normal(size=len(centre.mean))
    client.state["walk"] = walk
    return Moments(client.w.sum(), (client.x - centre.mean + walk).sum(0), walk)


single_totals = client("toy.single_totals", GATHER)(total.answer)
single_walks = client("toy.single_walks", GATHER, batched=False)(wander.answer)


@client("toy.remember", TELL, batched=False)
def remember(centre: Centre, client: Client) -> None:
    client.state["last"] = centre.mean


@client("toy.echo", SUM, batched=False)
def echo(centre: Centre, client: Client) -> Centre:
    return centre


@client("toy.garble", STEP, batched=False)
def garble(up: Moments, client: Client, *, secret: int) -> Moments:
    return up


class Wanderer(Estimator):
    """Two questions a round, so that a crash can fall between them; the result depends on every draw and every state."""

    def __init__(self, max_iter=5, random_state=0):
        self.max_iter, self.random_state = max_iter, random_state

    def init(self, fed, rng):
        start = fed.sum(total, Centre(np.zeros(3)))
        return Centre(start.x / start.n)

    def step(self, fed, state):
        up = fed.sum(wander, state)
        fed.tell(remember, state)
        new = Centre(state.mean + 0.5 * up.x / up.n)
        return new, {"mean": float(new.mean[0])}

    def finish(self, fed, state):
        self.mean_ = state.mean
