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
    return _contribution(rows, loglik, work, change, rows * first, new)


def _contribution(rows, loglik, work, change, first_rows, first) -> Contribution:
    """From numbers: loglik is that of a row."""
    number = lambda v: np.asarray(float(v))  # noqa: E731
    return Contribution(number(rows), number(loglik * rows), number(work), change, number(first_rows), first)


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
def send(up: Contribution, client: Client, *, family: dict, quantiser: dict, alpha: float) -> Int[Array, "b"]:
    """The difference as bytes; the memory takes in what the server will read from them."""
    chosen, q = resolve(family, FAMILIES, "family"), resolve(quantiser, QUANTISERS, "quantiser")
    first, params = bool(up.first_rows > 0), client.state.pop("params")
    blocks = blocks_of(chosen, q, params, up.first if first else up.change)
    body = _encode(q, first, blocks, _rng(client.moment, client.name))
    if alpha:
        meant = _decode(q, first, [b.shape for b in blocks], body, _rng(client.moment, client.name))
        step = 1.0 if first else alpha
        new = stats_of(chosen, q, params, meant)
        client.state["memory"] = tree.map(lambda v, m: v + step * m, client.state["memory"], new)
    head = struct.pack(HEAD, first, float(up.rows), float(up.loglik / up.rows), int(up.work))
    return np.frombuffer(head + body.tobytes(), np.uint8)


def receive(family: Any, quantiser: Any, params: Tree, journal: Journal) -> Callable[[Tree, str], Tree]:
    """How the server undoes `send`: blocks stay in the frame they were sent in, which is linear, so they add."""
    shapes = [b.shape for b in blocks_of(family, quantiser, params, family.moments(params))]
    zeros = [np.zeros(shape) for shape in shapes]

    def undo(sent: Tree, name: str) -> Contribution:
        content = to_numpy(sent).astype(np.uint8)
        cut = struct.calcsize(HEAD)
        first, rows, loglik, work = struct.unpack(HEAD, bytes(content[:cut]))
        blocks = _decode(quantiser, first, shapes, content[cut:], _rng((journal.seed, journal.round), name))
        change, new = (zeros, blocks) if first else (blocks, zeros)
        return _contribution(rows, loglik, work, change, rows * bool(first), new)

    return undo


def blocks_of(family: Any, quantiser: Any, params: Tree, stats: Tree) -> list[np.ndarray]:
    """The statistics as matrices of like numbers, or as they are if nothing is rounded."""
    return [tree.flatten(stats)[None]] if isinstance(quantiser, Identity) else family.whiten(params, stats)


def stats_of(family: Any, quantiser: Any, params: Tree, blocks: list[np.ndarray]) -> Tree:
    if isinstance(quantiser, Identity):
        return tree.unflatten(blocks[0][0], family.moments(params))
    return family.unwhiten(params, blocks)


def _encode(quantiser: Any, first: bool, blocks: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    parts = []
    for block in blocks:
        q = _fitted(quantiser, first, block.shape)
        padding = -block.shape[1] % q.bucket if isinstance(q, Dither) else 0
        parts.append(q.encode(np.pad(block, ((0, 0), (0, padding))).ravel(), rng))
    lengths = np.array([len(p) for p in parts[:-1]], "<u4").view(np.uint8)
    return np.concatenate([lengths, *parts])


def _decode(quantiser: Any, first: bool, shapes: list, body: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    head = 4 * (len(shapes) - 1)
    parts = np.split(body[head:], np.cumsum(body[:head].copy().view("<u4")))
    blocks = []
    for (rows, length), part in zip(shapes, parts):
        q = _fitted(quantiser, first, (rows, length))
        padded = length + (-length % q.bucket if isinstance(q, Dither) else 0)
        blocks.append(q.decode(part, rows * padded, rng).reshape(rows, padded)[:, :length])
    return blocks


def _fitted(quantiser: Any, first: bool, shape: tuple[int, int]) -> Any:
    """Buckets that fit a whole number of times into a padded row, so that none holds numbers of two components."""
    quantiser = FINE if first and not isinstance(quantiser, Identity) else quantiser
    if not isinstance(quantiser, Dither):
        return quantiser
    buckets = max(1, round(shape[1] / quantiser.bucket))
    return quantiser._replace(bucket=-(-shape[1] // buckets))


def _rng(moment: tuple[int, int], name: str) -> np.random.Generator:
    """Both ends draw alike, apart from what the client draws for its batches."""
    return generator(*moment, f"{name}, sent")


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
