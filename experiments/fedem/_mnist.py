"""MNIST as the paper has it: constant pixels dropped, the others standardised, 20 principal components, 100 clients.

And runs of FedEM on it, followed round by round by the likelihood of all rows and the bytes really sent up.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import unpooled as up
from unpooled.datasets import shared
from unpooled.maths import mixture
from unpooled.maths.gaussian import pack_covs
from unpooled.maths.mixture import Params
from unpooled.models.fedem import families

FAMILY = families.GaussianMixture(10, "full", floor=1e-2)  # the same eigenvalue floor for all that is compared
NEAR = 0.01  # of the likelihood a row where exact EM ends


class Course(NamedTuple):
    rounds: np.ndarray  # (t,)
    loglik: np.ndarray  # (t,) of all rows, a row, after so many rounds
    sent: np.ndarray  # (t,) bytes sent up until then
    halved: int  # steps that the guard shortened
    end: Params

    def first(self, target: float) -> tuple[float, float]:
        """(rounds, bytes) until the likelihood; infinite if it was never reached."""
        there = np.flatnonzero(self.loglik >= target)
        return (float(self.rounds[there[0]]), float(self.sent[there[0]])) if len(there) else (np.inf, np.inf)


def follow(
    fed: Any, x: np.ndarray, begin: Params, rounds: int, seed: int, every: int = 1, until: float = np.inf, **options
) -> Course:
    """A run of FedEM until it has a likelihood, looked at after every so many rounds, or after all if every client takes part."""
    model = up.FedEM(FAMILY, params_init=begin, tol=0, max_iter=rounds, random_state=seed, **options)
    seen, sent, halved = [], 0.0, 0
    for moment in model.rounds(fed):
        if not moment.history:
            continue
        n, row, before = len(moment.history), moment.history[-1], sent
        sent, halved = sent + row["bytes_up"], halved + row["halved"]
        if options.get("fraction", 1.0) == 1.0:  # all clients have told the likelihood of the params before this round
            seen.append((n - 1, row["loglik"], before))
        elif n % every == 0:
            seen.append((n, likelihood(model.result(moment.state), x), sent))
        if seen and seen[-1][1] >= until:
            break
    return Course(*np.array(seen).T, halved, model.result(moment.state))


def exact(fed: Any, x: np.ndarray, begin: Params, rounds: int, seed: int) -> Course:
    """Float64 EM. Clients change its sums by rounding alone, so it is run on all rows as one; bytes are those of a round over clients."""
    options = {"params_init": begin, "tol": 0, "random_state": seed}
    a_round = up.FedEM(FAMILY, max_iter=1, **options).fit(fed).history_[0]["bytes_up"]
    model = up.FedEM(FAMILY, max_iter=rounds + 1, **options).fit(up.federate(x, threads=1))
    loglik = np.array([row["loglik"] for row in model.history_[1:]])  # each is of the params before its round
    return Course(np.arange(1, rounds + 1), loglik, a_round * np.arange(1, rounds + 1), 0, model.params_)


def likelihood(params: Params, x: np.ndarray) -> float:
    return float(mixture.log_density(params, x, "full").mean())


@lru_cache(maxsize=1)
def components(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, 20) and the digits."""
    images = shared.mnist()
    x = np.concatenate([images.x_train, images.x_test]).reshape(70_000, -1).astype(np.float64)
    y = np.concatenate([images.y_train, images.y_test])
    x = x[:, x.std(axis=0) > 0]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    vectors = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :20]
    chosen = np.random.default_rng(seed).permutation(len(x))[:rows]
    return (x @ vectors)[chosen], y[chosen]


def clients(y: np.ndarray, split: str, rng: np.random.Generator, n: int = 100) -> np.ndarray:
    """The client of each row: by chance, or one digit a client as far as it goes."""
    order = rng.permutation(len(y)) if split == "chance" else np.argsort(y, kind="stable")
    client = np.empty(len(y), int)
    client[order] = np.arange(len(y)) * n // len(y)
    return client


def library_start(fed: Any, seed: int) -> Params:
    """Where FedEM starts by itself, over these clients."""
    model = up.FedEM(FAMILY, random_state=seed)
    return model.result(next(iter(model.rounds(fed))).state)


def start(x: np.ndarray, rng: np.random.Generator, k: int = 10) -> Params:
    """Equal weights, random rows as means, the covariance of all rows."""
    covs = pack_covs(np.tile(np.cov(x.T), (k, 1, 1)), "full")
    return Params(np.full(k, 1 / k), x[rng.choice(len(x), k, replace=False)], covs)
