"""FedEM and VR-FedEM with the memory of the field, all clients in one array: the library's rounds at a hundredth of the cost.

Thousands of rounds of a hundred clients with a handful of rows each are all plumbing when every client is asked apart. Clients of equal
size, sparsified messages and a family of the library; `tests/experiments/test_fedem_together.py` holds it to the library's own rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.models.fedem.families.base import responsibilities


class Setting(NamedTuple):
    omega: float = 1.0
    step_size: float = 0.01
    alpha: float = 0.5
    fraction: float = 0.75
    batch: int = 20
    epoch: int = 0  # rounds between full passes of VR-FedEM; 0 is FedEM


class Draws:
    """What is random in a round, for all clients."""

    def __init__(self, seed: int, clients: int):
        self.rng, self.clients = np.random.default_rng(seed), clients

    def cohort(self, round: int, fraction: float) -> np.ndarray:  # (c,) bool
        drawn = self.rng.random(self.clients) < fraction
        return drawn if drawn.any() else np.arange(self.clients) == self.rng.integers(self.clients)

    def batch(self, round: int, size: int, rows: int) -> np.ndarray:  # (c, size)
        return self.rng.integers(rows, size=(self.clients, size))

    def kept(self, round: int, share: float, q: int) -> np.ndarray:  # (c, q) bool
        return self.rng.random((self.clients, q)) < share


class Point(NamedTuple):
    work: float  # conditional expectations computed so far
    field: float  # |H|^2
    exact_field: float  # |h|^2 where the round began
    params: Any


class Clients:
    """What stays at the clients: their rows, V, and for variance reduction S_c, where it was taken and in which epoch."""

    def __init__(self, family: Any, x: np.ndarray, q: int):  # x (c, m, d)
        self.family, self.x = family, x
        c = len(x)
        self.memory, self.mean = np.zeros((c, q)), np.zeros((c, q))
        self.last, self.epoch = np.full(c, -1), np.full(c, -1)
        self.past: dict[int, Any] = {}  # round -> params, as long as a client holds them

    def means(self, params: Any, who: np.ndarray, rows: np.ndarray | None) -> np.ndarray:  # (a,), (a, b) -> (a, q)
        """Mean statistics of clients on these of their rows, or on all."""
        x = self.x[who] if rows is None else self.x[who[:, None], rows]
        flat = x.reshape(-1, x.shape[-1])
        r = responsibilities(self.family.log_joint(params, flat), np.ones(len(flat)))[0].reshape(*x.shape[:2], -1)
        first = np.einsum("abk,abd->akd", r, x) / x.shape[1]
        return np.concatenate([r.mean(axis=1), first.reshape(len(who), -1)], axis=1)

    def reduced(self, params: Any, who: np.ndarray, rows: np.ndarray, round: int, epoch: int) -> tuple[np.ndarray, int]:
        """(S_c of these clients, conditional expectations computed): all rows in a new epoch, else what a batch says has changed."""
        fresh = self.epoch[who] < epoch
        full, some = who[fresh], who[~fresh]
        if len(full):
            self.mean[full] = self.means(params, full, None)
        if len(some):
            self.mean[some] += self.means(params, some, rows[some])
        for then in np.unique(self.last[some]):
            same = some[self.last[some] == then]
            self.mean[same] -= self.means(self.past[int(then)], same, rows[same])
        self.epoch[full], self.last[who] = epoch, round
        self.past = {r: p for r, p in (self.past | {round: params}).items() if r in set(self.last.tolist())}
        return self.mean[who], len(full) * self.x.shape[1] + 2 * rows.shape[1] * len(some)


def rounds(family: Any, x: np.ndarray, params: Any, setting: Setting, draws: Any, every: int) -> Iterator[Point]:
    """A point every so many rounds, without end; x (c, m, d) in the family's frame."""
    c, m, _ = x.shape
    stats = tree.flatten(family.moments(params))
    clients, work, share = Clients(family, x, len(stats)), 0.0, 1 / (1 + setting.omega)
    everyone, round = np.arange(c), 0
    while True:
        who = everyone if round == 0 else np.flatnonzero(draws.cohort(round, setting.fraction))
        rows = draws.batch(round, setting.batch, m)
        if setting.epoch:
            mean, cost = clients.reduced(params, who, rows, round, round // setting.epoch)
        else:
            mean, cost = clients.means(params, who, rows[who]), setting.batch * len(who)
        work += cost
        apart = mean - stats - clients.memory[who]
        if round == 0:  # the memory starts at h_c(S_0)
            field, clients.memory = apart.mean(axis=0), apart
        else:
            kept = draws.kept(round, share, len(stats))[who]
            sent = np.where(kept, apart / share, 0.0).astype(np.float32).astype(np.float64)
            field = clients.memory.mean(axis=0) + sent.mean(axis=0)
            clients.memory[who] += setting.alpha * sent
        if round % every == 0:
            exact = clients.means(params, everyone, None).mean(axis=0) - stats
            yield Point(work, float(field @ field), float(exact @ exact), params)
        stats = stats + setting.step_size * field
        params = family.maximize(tree.unflatten(stats, family.moments(params)), params)
        round += 1
