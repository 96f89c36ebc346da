"""What FedEM asks of a client: its mean statistics on all rows, on a minibatch, or with reduced variance; and how they are sent.

What stays at the client: its memory V, and for variance reduction its last statistics and the params they were taken at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, Int, to_numpy
from unpooled.client import Client, client, generator
from unpooled.federation import Journal
from unpooled.maths.families import FAMILIES
from unpooled.maths.named import resolve
from unpooled.maths.quantise import QUANTISERS, Dither, Identity
from unpooled.tree import Tree

FINE = Dither(levels=127)  # for a client's first message, which is no difference yet
HEAD = "<BddI"  # first or not, rows, log-likelihood a row, conditional expectations computed


class Down(NamedTuple):
    params: Any
    stats: Any  # S, where the memory is of the field
    shift: Float[Array, "d"]
    unit: Float[Array, "d"]
    epoch: Int[Array, ""]  # variance reduction: a new number asks for all rows


class Contribution(NamedTuple):
    """Sums over the cohort."""

    rows: Float[Array, "", ">=0"]
    loglik: Float[Array, ""]
    work: Float[Array, "", ">=0"]  # conditional expectations computed
    change: Any  # rows x Q(mean statistics - reference) of clients that have a memory
    first_rows: Float[Array, "", ">=0"]
    first: Any  # the same of clients that are heard for the first time


class Exact(NamedTuple):
    rows: Float[Array, "", ">=0"]
    loglik: Float[Array, ""]
    stats: Any


class Target(NamedTuple):
    n: Float[Array, "", ">=0"]
    y: Float[Array, ""]
    yy: Float[Array, "", ">=0"]


class Scatter(NamedTuple):
    n: Float[Array, "", ">=0"]
    xx: Float[Array, "d d"]


# ---- questions before the first round ----


@client(batched=False)
def inspect(nothing: None, client: Client, *, family: dict) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(rows, how many of them the family cannot take)."""
    chosen, there = resolve(family, FAMILIES, "family"), to_numpy(client.w) > 0
    if chosen.supervised and client.y is None:
        return np.asarray(float(there.sum())), np.asarray(float(there.sum()))
    return np.asarray(float(there.sum())), np.asarray(float(chosen.bad_rows(_raw(chosen, client)[there]).sum()))


@client(adds=True, batched=False)
def target(nothing: None, client: Client) -> Target:
    y, w = to_numpy(client.y).astype(np.float64), to_numpy(client.w).astype(np.float64)
    return Target(*(np.asarray(v) for v in (w.sum(), w @ y, w @ y**2)))


@client(adds=True, batched=False)
def covariance(down: Down, client: Client) -> Scatter:
    """About the frame's origin, which is the mean of all rows."""
    x, w = (to_numpy(client.x) - down.shift) / down.unit, to_numpy(client.w)
    return Scatter(np.asarray(w.sum(), np.float64), (x * w[:, None]).T @ x)


@client(adds=True, batched=False)
def exact(down: Down, client: Client, *, family: dict) -> Exact:
    chosen = resolve(family, FAMILIES, "family")
    x, w = _rows(chosen, down, client)
    found = chosen.statistics(down.params, x, w)
    return Exact(np.asarray(w.sum()), np.asarray(found.loglik + _jacobian(chosen, down, x, w)), found.stats)


# ---- the question of every round ----


@client(batched=False)
def contribute(down: Down, client: Client, *, family: dict, batch: int | None, reduce: bool) -> Contribution:
    chosen = resolve(family, FAMILIES, "family")
    x, w = _rows(chosen, down, client)
    rows = w.sum()
    mean, loglik, work = (_reduced if reduce else _mean)(chosen, down, client, x, w, batch)
    first = "memory" not in client.state
    client.state.setdefault("memory", tree.map(np.zeros_like, mean))
    client.state["params"] = down.params
    if down.stats is None:
        apart = tree.map(lambda m, v: rows * m - v, mean, client.state["memory"])
    else:
        apart = tree.map(lambda m, s, v: rows * (m - s) - v, mean, down.stats, client.state["memory"])
    zeros = tree.map(np.zeros_like, mean)
    change, new = (zeros, apart) if first else (apart, zeros)
    numbers = (np.asarray(float(v)) for v in (rows, loglik * rows, work))
    return Contribution(*numbers, change, np.asarray(rows * first), new)


def _mean(family: Any, down: Down, client: Client, x, w, batch) -> tuple[Tree, float, int]:
    """(mean statistics, mean log-likelihood, conditional expectations computed) of all rows, or of some drawn with replacement."""
    if batch is not None:
        x, w = _draw(client, x, w, batch)
    found, rows = family.statistics(down.params, x, w), w.sum()
    loglik = (found.loglik + _jacobian(family, down, x, w)) / rows
    return tree.map(lambda s: s / rows, found.stats), loglik, len(w)


def _reduced(family: Any, down: Down, client: Client, x, w, batch) -> tuple[Tree, float, int]:
    """The last mean statistics, and what a minibatch says has changed since the params of then; all rows in a new epoch."""
    held = client.state.get("reduced")
    if held is None or held["epoch"] < down.epoch or batch is None:
        mean, loglik, work = _mean(family, down, client, x, w, None)
    else:
        x, w = _draw(client, x, w, batch)
        now, then = (family.statistics(p, x, w) for p in (down.params, held["params"]))
        mean = tree.map(lambda m, a, b: m + (a - b) / w.sum(), held["mean"], now.stats, then.stats)
        loglik, work = (now.loglik + _jacobian(family, down, x, w)) / w.sum(), 2 * len(w)
    client.state["reduced"] = {"epoch": np.asarray(down.epoch), "params": down.params, "mean": mean}
    return mean, loglik, work


def _draw(client: Client, x: np.ndarray, w: np.ndarray, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows by their weights, so that the plain mean of the batch is unbiased."""
    chosen = client.rng.choice(len(w), size=batch, p=w / w.sum())
    return x[chosen], np.ones(batch)


# ---- how an answer leaves, and what the server makes of it ----


@client(batched=False)
def send(up: Contribution, client: Client, *, family: dict, quantiser: dict, alpha: float) -> Int[Array, "bytes"]:
    """The difference as bytes; the memory takes in what the server will read from them."""
    first, params = bool(up.first_rows > 0), client.state.pop("params")
    chosen, q = resolve(family, FAMILIES, "family"), resolve(quantiser, QUANTISERS, "quantiser")
    head = struct.pack(HEAD, first, float(up.rows), float(up.loglik / up.rows), int(up.work))
    moment = (*client.moment, f"{client.name}, sent")
    body = _encode(chosen, q, first, params, up.first if first else up.change, generator(*moment))
    step = (1.0 if first else alpha) if alpha else 0.0
    meant = _decode(chosen, q, first, params, body, generator(*moment))
    client.state["memory"] = tree.map(lambda v, m: v + step * m, client.state["memory"], meant)
    return np.frombuffer(head + body.tobytes(), np.uint8)


def receive(family: Any, quantiser: Any, params: Tree, journal: Journal) -> Callable[[Tree, str], Tree]:
    """How the server undoes `send`: both ends know the params and draw alike."""

    def undo(sent: Tree, name: str) -> Contribution:
        content = to_numpy(sent).astype(np.uint8)
        first, rows, loglik, work = struct.unpack(HEAD, bytes(content[: struct.calcsize(HEAD)]))
        body = content[struct.calcsize(HEAD) :]
        meant = _decode(family, quantiser, first, params, body, generator(journal.seed, journal.round, f"{name}, sent"))
        zeros = tree.map(np.zeros_like, meant)
        change, new = (zeros, meant) if first else (meant, zeros)
        numbers = (np.asarray(float(v)) for v in (rows, loglik * rows, work))
        return Contribution(*numbers, change, np.asarray(rows * bool(first)), new)

    return undo


def _encode(family, quantiser, first: bool, params: Tree, stats: Tree, rng: np.random.Generator) -> np.ndarray:
    if isinstance(quantiser, Identity):
        return quantiser.encode(tree.flatten(stats), rng)
    q = FINE if first else quantiser
    parts = [_fitted(q, b).encode(_padded(q, b), rng) for b in family.whiten(params, stats)]
    lengths = np.array([len(p) for p in parts[:-1]], "<u4").view(np.uint8)
    return np.concatenate([lengths, *parts])


def _decode(family, quantiser, first: bool, params: Tree, body: np.ndarray, rng: np.random.Generator) -> Tree:
    template = family.moments(params)
    if isinstance(quantiser, Identity):
        return tree.unflatten(quantiser.decode(body, tree.flatten(template).size, rng), template)
    q = FINE if first else quantiser
    shapes = family.whiten(params, template)
    head = 4 * (len(shapes) - 1)
    cuts = np.cumsum(body[:head].copy().view("<u4"))
    parts = np.split(body[head:], cuts)
    blocks = [
        _fitted(q, b).decode(p, _padded(q, b).size, rng).reshape(len(b), -1)[:, : b.shape[1]]
        for p, b in zip(parts, shapes)
    ]
    return family.unwhiten(params, blocks)


def _fitted(quantiser: Any, block: np.ndarray) -> Any:
    """Buckets that fit a whole number of times into a padded row, so that none holds numbers of two components."""
    if not isinstance(quantiser, Dither):
        return quantiser
    length = block.shape[1]
    buckets = max(1, round(length / quantiser.bucket))
    return quantiser._replace(bucket=-(-length // buckets))


def _padded(quantiser: Any, block: np.ndarray) -> np.ndarray:
    if not isinstance(quantiser, Dither):
        return block.ravel()
    return np.pad(block, ((0, 0), (0, -block.shape[1] % _fitted(quantiser, block).bucket))).ravel()


# ---- rows ----


def _raw(family: Any, client: Client) -> np.ndarray:
    x = to_numpy(client.x).astype(np.float64, copy=False)
    return np.column_stack([x, to_numpy(client.y)]) if family.supervised else x


def _rows(family: Any, down: Down, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the family's frame, and their weights."""
    return (_raw(family, client) - down.shift) / down.unit, to_numpy(client.w).astype(np.float64, copy=False)


def _jacobian(family: Any, down: Down, x: np.ndarray, w: np.ndarray) -> float:
    """What turns densities in the frame into densities of the data: values that are there count, of inputs none."""
    logs = np.log(down.unit)
    if family.supervised:
        return -float(w.sum() * logs[-1])
    return -float((w @ ~np.isnan(x)) @ logs)
