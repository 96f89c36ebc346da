"""A federation whose rows are the columns that predictors see: indicators for levels, numbers scaled over all clients.

With scaling, one SUM of 3 numbers per column comes before the model's first question: how many values there are, their sum and
their sum of squares. Without it nothing is sent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, is_torch, namespace, to_numpy
from unpooled.client import KEYS, REGISTRY, SUM, VIEW, Ask, Client, client
from unpooled.data.schema import Schema, design_names
from unpooled.data.schema.design import level_counts, scaled_places, widened
from unpooled.federation import Federation, Layer, find_layer, refuse_few
from unpooled.local import Local
from unpooled.tree import Tree, message


@message("tables.Moments")
class Moments(NamedTuple):
    """Of every column of the design, missing values left out."""

    rows: Float[Array, "", ">=0 rows"]  # sum of w
    n: Float[Array, "p", ">=0 rows"]  # the same of the rows that have a value there
    x: Float[Array, "p"]  # sum of w x
    xx: Float[Array, "p"]  # sum of w x^2


@client("tables.moments", SUM, adds=True)
def moments(down: None, client: Client, *, levels: list) -> Moments:
    """The moments of the columns that levels are widened to."""
    x = widened(client.x, levels)  # (..., n, p)
    xp: Any = namespace(x)
    present = ~xp.isnan(x)
    w = client.w[..., None] * present
    filled = xp.where(present, x, xp.zeros_like(x))
    return Moments(client.w.sum(-1), w.sum(-2), (w * filled).sum(-2), (w * filled**2).sum(-2))


@client("tables.design", VIEW)
def design(client: Client, /, *, levels: list, mean: list, scale: list) -> Client:
    """The client with the columns that predictors see."""
    return replace(client, x=scaled(widened(client.x, levels), mean, scale), memo={})


def scaled(x: Array, mean: Sequence[float], scale: Sequence[float]) -> Array:
    """(x - mean) / scale, column by column; as it is where both lists are empty."""
    if not len(mean):
        return x
    if is_torch(x):
        return (x - x.new_tensor(list(mean))) / x.new_tensor(list(scale))
    return ((x - np.asarray(mean)) / np.asarray(scale)).astype(x.dtype, copy=False)


class Designed(Layer):
    """The same clients with indicators in place of levels, and numbers scaled by the means and deviations over all clients.

    Parameters
    ----------
    inner : Federation
        An engine whose rows are encoded by `schema`.
    schema : Schema
        Kinds and levels of the columns.
    scale : bool
        Whether numbers, dates and ordered categories are scaled; indicators never are.
    """

    def __init__(self, inner: Federation, schema: Schema, scale: bool):
        """Wrap `inner`, whose rows are encoded by `schema`; with `scale`, numbers get mean 0 and variance 1 over all
        clients.
        """
        super().__init__(inner)
        self._schema = schema
        self._scale = scale
        self._levels = level_counts(schema)
        # of cohorts as well
        self._share: dict[str, Any] = {"mean": None, "scale": None, "local": None, "engine": inner}

    @property
    def columns(self) -> list[str]:
        """Names of the columns that predictors see: `pain=typical` for the indicator of a level."""
        return design_names(self._schema)

    @property
    def schema(self) -> None:
        """None: every column is a number now."""

    @property
    def mean(self) -> list[float]:
        """What is subtracted from each column, empty before the moments were asked for."""
        return self._share["mean"] or []

    @property
    def scale(self) -> list[float]:
        """What each column is divided by, empty before the moments were asked for."""
        return self._share["scale"] or []

    # ---- asking ----

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Ask over the designed columns and add up the answers."""
        fed, ask = self._way(ask)
        return fed.sum(ask, down)

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Ask over the designed columns and keep each client's answer."""
        fed, ask = self._way(ask)
        return fed.gather(ask, down)

    def tell(self, ask: Ask, down: Tree) -> None:
        """Tell clients something over the designed columns."""
        fed, ask = self._way(ask)
        fed.tell(ask, down)

    def _way(self, ask: Ask) -> tuple[Any, Ask]:
        """(federation, question) to ask: clients in this process hold their new columns, others make them for each question."""
        if ask.kind == KEYS or ask.name == moments.name:
            return self.inner, ask
        views = any(REGISTRY[step.name].kind == VIEW for step in ask.steps)  # they choose among the rows as they were
        if not self._holds_clients or views:
            return self.inner, self.wrap(ask)
        whole = self._local()
        return (whole if len(whole.names) == len(self.names) else whole.only(self.names)), ask

    def wrap(self, ask: Ask) -> Ask:
        """The question with a step ahead of it that makes the designed columns at the client."""
        return ask.then(design, levels=self._levels, mean=self.mean, scale=self.scale)

    def find_moments(self, fed: Federation) -> None:
        """Ask for the moments, through all layers around this one, unless they are known."""
        if self._scale and self._share["mean"] is None:
            total = fed.sum(moments.using(levels=self._levels), None)
            refuse_rare_levels(fed, self.columns, to_numpy(total.n), to_numpy(total.x))
            self._share["mean"], self._share["scale"] = _mean_and_scale(total, self._schema)

    def refuse_rare(self, fed: Federation, sums: Mapping[str, tuple[float, float]]) -> None:
        """Refuse a study in which few rows have a level, given (values, sum of values) of some columns of the design."""
        found: dict[str, float] = {}
        for c in self._schema:
            several = c.kind == "category" or (c.kind == "binary" and bool(c.levels))
            names = [f"{c.name}={level}" for level in c.levels[1:]] if several else [c.name]
            if c.kind not in ("category", "binary") or not names or not set(names) <= set(sums):
                continue
            counts = [sums[name][1] for name in names]
            others = sums[names[0]][0] - sum(counts)
            levels = c.levels or ("0", "1")
            found |= {f"level {level!r} of {c.name!r}": round(n, 6) for level, n in zip(levels, [others, *counts])}
        refuse_few(fed, found)

    # ---- clients of this process ----

    def here(self) -> list[Client]:
        """Clients in this process, with designed columns; empty where clients are elsewhere."""
        if not self._holds_clients:
            return [self._client(c) for c in self.inner.here()]
        wanted = set(self.names)
        return [c for c in self._local().here() if c.name in wanted]

    @property
    def _holds_clients(self) -> bool:
        """Whether the clients are in this process, so that their columns can be designed once."""
        return isinstance(self._share["engine"], Local)

    def _local(self) -> Any:
        """The engine of this process over clients with the new columns; made anew once the moments are known."""
        scaled_now = self._share["mean"] is not None
        if self._share["local"] is None or self._share["local"][0] != scaled_now:
            engine = copy.copy(self._share["engine"])
            engine.clients = [self._client(c) for c in engine.clients]
            engine._jobs = {}
            self._share["local"] = (scaled_now, engine)
        return self._share["local"][1]

    def _client(self, c: Client) -> Client:
        """The same client with designed columns; its state is a copy."""
        x = scaled(widened(c.x, self._levels), self.mean, self.scale)
        return replace(c, x=x, state=dict(c.state), memo={})

    # ---- checkpoints ----

    def snapshot(self) -> Tree:
        """Means, scales and the state of what lies within, for a checkpoint."""
        inner = self._local().snapshot() if self._holds_clients else self.inner.snapshot()
        known = {k: np.asarray(self._share[k]) for k in ("mean", "scale") if self._share[k] is not None}
        return {**known, "inner": inner}

    def restore(self, saved: Tree) -> None:
        """Go back to what `snapshot` gave."""
        known = {k: np.asarray(saved[k]).tolist() if k in saved else None for k in ("mean", "scale")}
        self._share |= {**known, "local": None}
        inside = saved.get("inner", {})
        self.inner.restore(inside)
        if self._holds_clients:
            self._local().restore(inside)


def refuse_rare_levels(fed: Any, names: Sequence[str], n: Array, x: Array) -> None:
    """Refuse a study in which few rows have a level: their next sums would be those of few people.

    `names` are columns of the design, `n` how many values each has (or one number for all), `x` the sums of the values.
    """
    design = find_layer(fed, "refuse_rare")
    if design is not None:
        counts = np.broadcast_to(np.asarray(n, np.float64), np.shape(x)).tolist()
        design.refuse_rare(fed, dict(zip(names, zip(counts, np.asarray(x, np.float64).tolist()))))


def mean_and_deviation(total: Moments) -> tuple[np.ndarray, np.ndarray]:  # (p,), (p,)
    """Means and standard deviations of all columns; 1 for constant ones."""
    n = np.maximum(np.asarray(total.n, np.float64), np.finfo(float).tiny)
    mean = np.asarray(total.x, np.float64) / n
    variance = np.maximum(np.asarray(total.xx, np.float64) / n - mean**2, 0.0)
    varies = variance > 1e-12 * np.maximum(mean**2, 1e-300)
    return mean, np.sqrt(np.where(varies, variance, 1.0))


def _mean_and_scale(total: Moments, schema: Schema) -> tuple[list[float], list[float]]:
    """Means and standard deviations of the columns that are scaled; 0 and 1 for the others, and 1 for constant ones."""
    mean, scale = mean_and_deviation(total)
    chosen = np.zeros(len(mean), bool)
    chosen[scaled_places(schema)] = True
    return np.where(chosen, mean, 0.0).tolist(), np.where(chosen, scale, 1.0).tolist()


@contextmanager
def designed(fed: Any, schema: Schema, scale: bool) -> Iterator[Any]:
    """The federation with the columns of the design, while the block lasts.

    The design is put just above the engine, so that layers work on what they always do; layers keep what they count and know.
    """
    lowest = fed
    while isinstance(lowest, Layer) and isinstance(lowest.inner, Layer):
        lowest = lowest.inner
    if not isinstance(lowest, Layer):
        yield Designed(fed, schema, scale)
        return
    engine = lowest.inner
    lowest.inner = Designed(engine, schema, scale)
    try:
        yield fed
    finally:
        lowest.inner = engine
