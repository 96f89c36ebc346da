"""FedEM at a client: the questions about its rows.

Each round asks `fedem.contribute`: how far the client's mean statistics are from its memory, on all rows, on a minibatch, or with reduced
variance. The answer leaves as bytes (`compression.py`). At the client stay: its memory V, the version of the parameters it last answered
about, and for variance reduction its last statistics with the parameters they were computed at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, Int, to_numpy
from unpooled.choices import resolve
from unpooled.client import SUM, Client, client
from unpooled.models.fedem.families import FAMILIES
from unpooled.tree import Tree, message

REPEATED, UPDATED, FIRST = range(3)  # answers: about parameters answered before; about new ones; the client's first


@message("fedem.Down")
class Down(NamedTuple):
    """What clients are told in a round."""

    params: Any
    stats: Any  # S, where the memory follows the field; otherwise None
    shift: Float[Array, "d"]
    unit: Float[Array, "d"]
    epoch: Int[Array, ""]  # variance reduction: a new number asks for all rows
    version: Int[Array, ""]  # how often the parameters have moved


@message("fedem.Contribution")
class Contribution(NamedTuple):
    """Sums over the clients of a round."""

    rows: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    expectations: Float[Array, "", ">=0"]  # number of conditional expectations computed
    change: Any  # rows x mean statistics - memory, of clients that have a memory
    updated_rows: Float[Array, "", ">=0 rows"]  # rows of clients that answer about these parameters for the first time
    first_rows: Float[Array, "", ">=0 rows"]  # rows of clients that answer for the first time at all
    first: Any  # rows x mean statistics of these


@message("fedem.Exact")
class Exact(NamedTuple):
    """Sums over all rows."""

    rows: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]
    stats: Any


@message("fedem.Likelihood")
class Likelihood(NamedTuple):
    """Sums over all rows."""

    rows: Float[Array, "", ">=0 rows"]
    loglik: Float[Array, ""]


@message("fedem.Target")
class Target(NamedTuple):
    """Sums over all rows."""

    n: Float[Array, "", ">=0 rows"]
    y: Float[Array, ""]
    yy: Float[Array, "", ">=0"]


@message("fedem.Scatter")
class Scatter(NamedTuple):
    """Sums over all rows."""

    n: Float[Array, "", ">=0 rows"]
    xx: Float[Array, "d d"]


# ---- questions before the first round ----


@client("fedem.inspect", SUM, batched=False)
def inspect(nothing: None, client: Client, *, family: dict) -> tuple[Float[Array, "", ">=0 rows"], Float[Array, ""]]:
    """(number of rows, number of rows that do not suit the family)."""
    chosen = resolve(family, FAMILIES, "family")
    present = to_numpy(client.w) > 0
    rows = float(present.sum())
    if chosen.supervised and client.y is None:
        return np.asarray(rows), np.asarray(rows)
    bad = chosen.bad_rows(_columns(chosen, client)[present])
    return np.asarray(rows), np.asarray(float(bad.sum()))


@client("fedem.target", SUM, adds=True, batched=False)
def target(nothing: None, client: Client) -> Target:
    """Number of rows, sum of the targets and sum of their squares."""
    y = to_numpy(client.y).astype(np.float64)
    w = to_numpy(client.w).astype(np.float64)
    return Target(np.asarray(w.sum()), np.asarray(w @ y), np.asarray(w @ y**2))


@client("fedem.covariance", SUM, adds=True, batched=False, exact=True)
def covariance(down: Down, client: Client) -> Scatter:
    """Number of rows, and their scatter about the mean of all rows."""
    x = (to_numpy(client.x) - down.shift) / down.unit
    w = to_numpy(client.w)
    return Scatter(np.asarray(w.sum(), np.float64), (x * w[:, None]).T @ x)


# ---- the question of every round ----


@client("fedem.contribute", SUM, batched=False)
def contribute(down: Down, client: Client, *, family: dict, batch: int | None, reduce: bool) -> Contribution:
    """How far the client's statistics are from its memory; the memory moves when the answer is compressed."""
    chosen = resolve(family, FAMILIES, "family")
    x, w = _rows(chosen, down, client)
    rows = w.sum()
    statistics = _reduced_mean if reduce else _mean
    mean, loglik, expectations = statistics(chosen, down, client, x, w, batch)
    kind = _kind(down, client)
    zeros = tree.map(np.zeros_like, mean)
    memory = client.state.setdefault("memory", zeros)
    client.state["version"] = np.asarray(down.version)
    client.state["pending"] = {"params": down.params, "whole": tree.map(lambda m: rows * m, mean)}  # for the codec
    if kind == REPEATED:  # the server has this client's answer about these parameters
        change = zeros
    elif down.stats is None:
        change = tree.map(lambda m, v: rows * m - v, mean, memory)
    else:
        change = tree.map(lambda m, s, v: rows * (m - s) - v, mean, down.stats, memory)
    return contribution(kind, rows, loglik, expectations, change, zeros)


def _kind(down: Down, client: Client) -> int:
    """Whether a client takes part for the first time, again after an update, or repeats a round."""
    if "memory" not in client.state:
        return FIRST
    return REPEATED if client.state["version"] == down.version else UPDATED


def contribution(
    kind: int, rows: float, mean_loglik: float, expectations: float, change: Tree, zeros: Tree
) -> Contribution:
    """One client's answer; `change` is its first one, or a change since the last."""
    is_first = kind == FIRST
    return Contribution(
        rows=_scalar(rows),
        loglik=_scalar(mean_loglik * rows),
        expectations=_scalar(expectations),
        change=zeros if is_first else change,
        updated_rows=_scalar(rows * (kind == UPDATED)),
        first_rows=_scalar(rows * is_first),
        first=change if is_first else zeros,
    )


def _scalar(value: float) -> np.ndarray:
    """A number as an array that can be added up."""
    return np.asarray(float(value))


def _mean(
    family: Any, down: Down, client: Client, x: np.ndarray, w: np.ndarray, batch: int | None
) -> tuple[Tree, float, int]:
    """(mean statistics, mean log-likelihood, expectations computed), of all rows or of a minibatch."""
    if batch is not None:
        x, w = _minibatch(client, x, w, batch)
    found = family.statistics(down.params, x, w)
    rows = w.sum()
    loglik = (found.loglik + _log_jacobian(family, down, x, w)) / rows
    return tree.map(lambda s: s / rows, found.stats), loglik, len(w)


def _reduced_mean(
    family: Any, down: Down, client: Client, x: np.ndarray, w: np.ndarray, batch: int | None
) -> tuple[Tree, float, int]:
    """As `_mean`: the last statistics, plus their change on a minibatch since then; all rows in a new epoch.

    A change needs two expectations for each row of the batch: where the client has no more rows than that, all are used.
    """
    last = client.state.get("reduced")
    if last is None or last["epoch"] < down.epoch or batch is None or 2 * batch >= len(w):
        mean, loglik, expectations = _mean(family, down, client, x, w, None)
    else:
        x, w = _minibatch(client, x, w, batch)
        new = family.statistics(down.params, x, w)
        old = family.statistics(last["params"], x, w)
        mean = tree.map(lambda m, a, b: m + (a - b) / w.sum(), last["mean"], new.stats, old.stats)
        loglik = (new.loglik + _log_jacobian(family, down, x, w)) / w.sum()
        expectations = 2 * len(w)
    client.state["reduced"] = {"epoch": np.asarray(down.epoch), "params": down.params, "mean": mean}
    return mean, loglik, expectations


def _minibatch(client: Client, x: np.ndarray, w: np.ndarray, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn with replacement in proportion to their weights, so that the mean of the batch is unbiased."""
    chosen = client.secret_rngs[0].choice(len(w), size=batch, p=w / w.sum())
    return x[chosen], np.ones(batch)


# ---- exact questions: about all rows, never rounded ----


@client("fedem.exact", SUM, adds=True, batched=False, exact=True)
def exact(down: Down, client: Client, *, family: dict) -> Exact:
    """Number of rows, their log-likelihood and their statistics under the parameters."""
    chosen = resolve(family, FAMILIES, "family")
    x, w = _rows(chosen, down, client)
    found = chosen.statistics(down.params, x, w)
    loglik = found.loglik + _log_jacobian(chosen, down, x, w)
    return Exact(np.asarray(w.sum()), np.asarray(loglik), found.stats)


@client("fedem.loglik", SUM, adds=True, batched=False)
def log_likelihood(down: Down, client: Client, *, family: dict) -> Likelihood:
    """Number of rows and their log-likelihood under the parameters: 16 bytes per client."""
    found = exact.answer(down, client, family=family)
    return Likelihood(found.rows, found.loglik)


# ---- rows ----


def _columns(family: Any, client: Client) -> np.ndarray:
    """The columns of the rows, with the target last where the family has one."""
    x = to_numpy(client.x).astype(np.float64, copy=False)
    return np.column_stack([x, to_numpy(client.y)]) if family.supervised else x


def _rows(family: Any, down: Down, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """(standardised rows, their weights)."""
    x = (_columns(family, client) - down.shift) / down.unit
    return x, to_numpy(client.w).astype(np.float64, copy=False)


def _log_jacobian(family: Any, down: Down, x: np.ndarray, w: np.ndarray) -> float:
    """The log-likelihood of rows in the units of the data minus that of standardised rows."""
    log_unit = np.log(down.unit)
    if family.supervised:  # a density of the target alone
        return -float(w.sum() * log_unit[-1])
    observed = ~np.isnan(x)
    return -float((w @ observed) @ log_unit)
