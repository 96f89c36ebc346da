"""The held-out gap of private mixtures to scikit-learn's fit without privacy, in nats per row."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from _kept import Kept
from _peers import dp_em
from _problems import Problem
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import unpooled as up
from unpooled.layers.private import Private
from unpooled.models.private import PrivateGaussianMixture
from unpooled.privacy.accountant import mu_of

Problems = Iterable[Callable[[], Problem]]


def delta(problem: Problem) -> float:
    return len(problem.train) ** -1.1


def without_privacy(problem: Problem, seed: int) -> float:
    """The held-out log-likelihood per row of scikit-learn's fit."""
    starts = 10 if problem.k > 8 else 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return (
            GaussianMixture(problem.k, n_init=starts, random_state=seed, max_iter=300)
            .fit(problem.train)
            .score(problem.test)
        )


def with_privacy(problem: Problem, method: str, epsilon: float, seed: int) -> float:
    if method == "DP-EM":
        mu = mu_of(epsilon, delta(problem))
        found = dp_em(problem.train, problem.bounds, problem.k, mu, np.random.default_rng(seed))
        return found.score(problem.test)
    masked = method == "ours"
    parts = {"all": problem.train} if masked else {f"c{i}": problem.train[i::10] for i in range(10)}
    secret = hashlib.sha256(f"{method} {epsilon} {seed}".encode()).digest()
    budget = {"epsilon": epsilon, "delta": delta(problem), "bounds": problem.bounds}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", up.errors.DataWarning)
        private = Private(up.federate(parts, threads=1), masked=masked, secret=secret, **budget)
    return PrivateGaussianMixture(problem.k, random_state=seed).fit(private).score(problem.test)


def gaps(
    name: str, problems: Problems, epsilons: dict[str, tuple[float, ...]], kept: Kept
) -> dict[tuple[str, float], np.ndarray]:
    """(method, epsilon) -> gap of every problem; `epsilons` are those of each method, `problems` make one for each seed."""
    found: dict[tuple[str, float], list[float]] = {(m, e): [] for m, some in epsilons.items() for e in some}
    for seed, make in enumerate(problems):
        problem = cache(make)
        best = kept.get(f"{name}, without privacy, {seed}", lambda: without_privacy(problem(), seed))  # noqa: B023
        for (method, epsilon), values in found.items():
            fit = lambda: with_privacy(problem(), method, epsilon, seed)  # noqa: B023, E731
            values.append(best - kept.get(f"{name}, {method}, epsilon {epsilon}, {seed}", fit))
    return {key: np.array(values) for key, values in found.items()}


def row(what: dict, method: str, epsilon: float, values: np.ndarray, goal: str = "") -> dict:
    return what | {
        "method": method,
        "epsilon": epsilon,
        "fits": len(values),
        "median gap": float(np.median(values)),
        "worst gap": float(values.max()),
        "goal": goal or None,
    }
