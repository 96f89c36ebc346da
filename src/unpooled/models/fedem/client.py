"""What FedEM asks of a client: its mean statistics on all rows, on a minibatch, or with reduced variance; and how they are sent.

What stays at the client: its memory V, the number of the params it has last answered about, and for variance reduction its last
statistics and the params they were taken at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, Int, received_bytes, to_numpy
from unpooled.choices import resolve
from unpooled.client import GATHER, STEP, SUM, Client, client, generator
from unpooled.federation import Journal
from unpooled.layers.compression.quantisers import QUANTISERS, Dither, Identity
from unpooled.models.fedem.families import FAMILIES
from unpooled.tree import Tree, message

FINE = Dither(levels=127)  # for a client's first message, which is no difference yet
KEEN = 40  # levels, times the share of its statistics by which a client's have changed, where that is more than was asked for
HEAD = "<BddI"  # levels, rows, log-likelihood a row, four times the conditional expectations computed plus which answer it is
AGAIN, ANEW, FIRST = range(3)  # about params it has answered about before; about new ones; its first of all


@message("fedem.Down")
class Down(NamedTuple):
    params: Any
    stats: Any  # S, where the memory is of the field
    shift: Float[Array, "d"]
    unit: Float[Array, "d"]
    epoch: Int[Array, ""]  # variance reduction: a new number asks for all rows
    move: Int[Array, ""]  # how often the params have moved


@message("fedem.Contribution")
class Contribution(NamedTuple):
    """Sums over the cohort."""

    rows: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    work: Float[Array, "", ">=0"]  # conditional expectations computed
    change: Any  # rows x Q(mean statistics - reference) of clients that have a memory
    heard: Float[Array, "", ">=0 rows"]  # rows of those among them that answer for the first time about these params
    first_rows: Float[Array, "", ">=0 rows"]
    first: Any  # the same of clients that are heard for the first time


@message("fedem.Exact")
class Exact(NamedTuple):
    rows: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    stats: Any


@message("fedem.Target")
class Target(NamedTuple):
    n: Float[Array, "", ">=0 rows"]
    y: Float[Array, ""]
    yy: Float[Array, "", ">=0"]


@message("fedem.Scatter")
class Scatter(NamedTuple):
    n: Float[Array, "", ">=0 rows"]
    xx: Float[Array, "d d"]


# ---- questions before the first round ----


@client("fedem.inspect", GATHER, batched=False)
def inspect(nothing: None, client: Client, *, family: dict) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(rows, how many of them the family cannot take)."""
    chosen, there = resolve(family, FAMILIES, "family"), to_numpy(client.w) > 0
    if chosen.supervised and client.y is None:
        return np.asarray(float(there.sum())), np.asarray(float(there.sum()))
    return np.asarray(float(there.sum())), np.asarray(float(chosen.bad_rows(_raw(chosen, client)[there]).sum()))


@client("fedem.target", SUM, adds=True, batched=False)
def target(nothing: None, client: Client) -> Target:
    """How many rows there are, and the sums of their targets and of the targets' squares."""
    y, w = to_numpy(client.y).astype(np.float64), to_numpy(client.w).astype(np.float64)
    return Target(*(np.asarray(v) for v in (w.sum(), w @ y, w @ y**2)))


@client("fedem.covariance", SUM, adds=True, batched=False)
def covariance(down: Down, client: Client) -> Scatter:
    """About the frame's origin, which is the mean of all rows."""
    x, w = (to_numpy(client.x) - down.shift) / down.unit, to_numpy(client.w)
    return Scatter(np.asarray(w.sum(), np.float64), (x * w[:, None]).T @ x)


@client("fedem.exact", SUM, adds=True, batched=False)
def exact(down: Down, client: Client, *, family: dict) -> Exact:
    """The statistics of all rows under the parameters, and their log-likelihood."""
    chosen = resolve(family, FAMILIES, "family")
    x, w = _rows(chosen, down, client)
    found = chosen.statistics(down.params, x, w)
    return Exact(np.asarray(w.sum()), np.asarray(found.loglik + _jacobian(chosen, down, x, w)), found.stats)


# ---- the question of every round ----


@client("fedem.contribute", SUM, batched=False)
def contribute(down: Down, client: Client, *, family: dict, batch: int | None, reduce: bool) -> Contribution:
    """How far the client's statistics are from what it has said before; it keeps what it says."""
    chosen = resolve(family, FAMILIES, "family")
    x, w = _rows(chosen, down, client)
    rows = w.sum()
    mean, loglik, work = (_reduced if reduce else _mean)(chosen, down, client, x, w, batch)
    which = _which(down, client)
    client.state.setdefault("memory", tree.map(np.zeros_like, mean))
    client.state["move"] = np.asarray(down.move)
    client.state["asked"] = {"params": down.params, "whole": tree.map(lambda m: rows * m, mean)}  # until it is sent
    if which == AGAIN:  # what it would say is what it has said
        apart = tree.map(np.zeros_like, mean)
    elif down.stats is None:
        apart = tree.map(lambda m, v: rows * m - v, mean, client.state["memory"])
    else:
        apart = tree.map(lambda m, s, v: rows * (m - s) - v, mean, down.stats, client.state["memory"])
    return _contribution(which, rows, loglik, work, apart, tree.map(np.zeros_like, mean))


def _which(down: Down, client: Client) -> int:
    if "memory" not in client.state:
        return FIRST
    return AGAIN if client.state["move"] == down.move else ANEW


def _contribution(which: int, rows, loglik, work, apart: Tree, zeros: Tree) -> Contribution:
    """From numbers: loglik is that of a row."""
    number = lambda v: np.asarray(float(v))  # noqa: E731
    change, first = (zeros, apart) if which == FIRST else (apart, zeros)
    heard, first_rows = number(rows * (which == ANEW)), number(rows * (which == FIRST))
    return Contribution(number(rows), number(loglik * rows), number(work), change, heard, first_rows, first)


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


@client("fedem.send", STEP, batched=False)
def send(up: Contribution, client: Client, *, family: dict, quantiser: dict, alpha: float) -> Int[Array, "b"]:
    """The difference as bytes; the memory takes in what the server will read from them."""
    chosen, q = resolve(family, FAMILIES, "family"), resolve(quantiser, QUANTISERS, "quantiser")
    which = FIRST if up.first_rows > 0 else ANEW if up.heard > 0 else AGAIN
    asked = client.state.pop("asked")
    blocks = blocks_of(chosen, q, asked["params"], up.first if which == FIRST else up.change)
    levels = _levels(q, blocks, blocks_of(chosen, q, asked["params"], asked["whole"]) if alpha else [])
    of_message = _of_message(q, which, levels)
    body = _encode(of_message, blocks, _rng(client.moment, client.name))
    if alpha:
        meant = _decode(of_message, [b.shape for b in blocks], body, _rng(client.moment, client.name))
        step = 1.0 if which == FIRST else alpha
        new = stats_of(chosen, q, asked["params"], meant)
        client.state["memory"] = tree.map(lambda v, m: v + step * m, client.state["memory"], new)
    head = struct.pack(HEAD, levels, float(up.rows), float(up.loglik / up.rows), 4 * int(up.work) + which)
    return np.frombuffer(head + body.tobytes(), np.uint8)


def receive(family: Any, quantiser: Any, params: Tree, journal: Journal) -> Callable[[Tree, str], Tree]:
    """How the server undoes `send`: blocks stay in the frame they were sent in, which is linear, so they add."""
    shapes = [b.shape for b in blocks_of(family, quantiser, params, family.moments(params))]
    zeros = [np.zeros(shape) for shape in shapes]

    def undo(sent: Tree, name: str) -> Contribution:
        try:
            return read(received_bytes(sent), _rng((journal.seed, journal.round), name))
        except ValueError as error:
            raise tree.SchemaError(
                f"the answer of {name!r} cannot be read ({error}): start that client again if it goes on"
            ) from error

    def read(content: bytes, rng: np.random.Generator) -> Contribution:
        cut = struct.calcsize(HEAD)
        if len(content) < cut:
            raise ValueError("its head is cut off")
        levels, rows, loglik, rest = struct.unpack(HEAD, content[:cut])
        work, which = divmod(rest, 4)
        if which > FIRST or (isinstance(quantiser, Dither) and not quantiser.levels <= levels <= FINE.levels):
            raise ValueError("its head says what no client of FedEM says")
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            blocks = _decode(_of_message(quantiser, which, levels), shapes, np.frombuffer(content[cut:], np.uint8), rng)
            return _contribution(which, rows, loglik, work, blocks, zeros)

    return undo


def blocks_of(family: Any, quantiser: Any, params: Tree, stats: Tree) -> list[np.ndarray]:
    """The statistics as matrices of like numbers, or as they are if nothing is rounded."""
    return [tree.flatten(stats)[None]] if isinstance(quantiser, Identity) else family.whiten(params, stats)


def stats_of(family: Any, quantiser: Any, params: Tree, blocks: list[np.ndarray]) -> Tree:
    if isinstance(quantiser, Identity):
        return tree.unflatten(blocks[0][0], family.moments(params))
    return family.unwhiten(params, blocks)


def _levels(quantiser: Any, blocks: list[np.ndarray], whole: list[np.ndarray]) -> int:
    """As many as were asked for, or more: while statistics change by much, rounding is fine against the statistics themselves."""
    if not isinstance(quantiser, Dither):
        return 0
    change, size = (np.sqrt(sum(float(np.sum(b**2)) for b in found)) for found in (blocks, whole))
    return int(np.clip(np.ceil(KEEN * change / size), quantiser.levels, FINE.levels)) if size else quantiser.levels


def _of_message(quantiser: Any, which: int, levels: int) -> Any:
    if isinstance(quantiser, Identity):
        return quantiser
    if which == FIRST:
        return FINE
    return quantiser._replace(levels=levels) if isinstance(quantiser, Dither) else quantiser


def _encode(quantiser: Any, blocks: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """No bytes at all if nothing is new."""
    if not any(block.any() for block in blocks):
        return np.zeros(0, np.uint8)
    parts = []
    for block in blocks:
        q = _fitted(quantiser, block.shape)
        padding = -block.shape[1] % q.bucket if isinstance(q, Dither) else 0
        parts.append(q.encode(np.pad(block, ((0, 0), (0, padding))).ravel(), rng))
    lengths = np.array([len(p) for p in parts[:-1]], "<u4").view(np.uint8)
    return np.concatenate([lengths, *parts])


def _decode(quantiser: Any, shapes: list, body: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    if not len(body):
        return [np.zeros(shape) for shape in shapes]
    head = 4 * (len(shapes) - 1)
    if len(body) < head:
        raise ValueError("the lengths of its blocks are cut off")
    parts = np.split(body[head:], np.cumsum(body[:head].copy().view("<u4")))
    blocks = []
    for (rows, length), part in zip(shapes, parts):
        q = _fitted(quantiser, (rows, length))
        padded = length + (-length % q.bucket if isinstance(q, Dither) else 0)
        blocks.append(q.decode(part, rows * padded, rng).reshape(rows, padded)[:, :length])
    return blocks


def _fitted(quantiser: Any, shape: tuple[int, int]) -> Any:
    """Buckets that fit a whole number of times into a padded row, so that none holds numbers of two components."""
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
