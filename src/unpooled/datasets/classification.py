"""Synthetic clients that differ in their inputs and in their labelling rule, with the true parameters.

A client's rows come from a mixture of M components, each with a labelling half-space of its own; clients differ in the
mixing weights. `paper` follows the text of FedGMM's section 4.1, `public` its released generator; `family` and
`odd_family` give settings 1 (all rows Laplace or Beta) and 2 (a third of the clients completely different).

>>> task = paper(clients=3, rows=50, random_state=0)
>>> len(task.train), round(task.bayes_accuracy(task.test), 1) >= 0.9
(3, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from unpooled.data.tables import numbered
from unpooled.errors import BadParameter, suggest

FAMILIES = ("gaussian", "laplace", "beta")
Rows = dict[str, tuple[np.ndarray, np.ndarray]]  # client: ((n, d), (n,))


class Components(NamedTuple):
    """M densities of one family, and the half-space that labels the rows of each: 1 where x'v > offset."""

    family: str
    first: np.ndarray  # (M, d) means, or Beta's alpha
    second: np.ndarray  # (M, d) scales, or Beta's beta
    v: np.ndarray  # (M, d)
    offset: np.ndarray  # (M,)

    def frozen(self, m: Any) -> Any:
        """SciPy's distribution of the columns of component m; m may be an array with one entry per row."""
        make = {"gaussian": stats.norm, "laplace": stats.laplace, "beta": stats.beta}[self.family]
        return make(self.first[m], self.second[m])

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """(n, M)."""
        return np.stack([self.frozen(m).logpdf(x).sum(-1) for m in range(len(self.v))], axis=-1)

    def labels(self, x: np.ndarray) -> np.ndarray:
        """(n, M): the label each component would give each row."""
        return (x @ self.v.T > self.offset).astype(np.int64)

    def crossed(self) -> Components:
        """All M x M pairs of a density and a half-space, so that the label rule does not depend on the density."""
        m = len(self.v)
        rows = np.repeat(np.arange(m), m)
        columns = np.tile(np.arange(m), m)
        return Components(self.family, self.first[rows], self.second[rows], self.v[columns], self.offset[columns])


class Task(NamedTuple):
    """Rows by client (train, validation, test) and the true parameters."""

    train: Rows
    valid: Rows
    test: Rows
    weights: dict[str, np.ndarray]  # (M,) of each client
    components: dict[str, Components]  # of each client; most share one

    def bayes(self, x: np.ndarray, client: str) -> np.ndarray:
        """The Bayes classifier's predictions for rows of a client, (n,)."""
        parts = self.components[client]
        log_p = parts.log_density(x) + np.log(self.weights[client])
        p = np.exp(log_p - log_p.max(-1, keepdims=True))
        return ((p * parts.labels(x)).sum(-1) > 0.5 * p.sum(-1)).astype(np.int64)

    def bayes_accuracy(self, rows: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> float:
        """The accuracy of the Bayes classifier, averaged over clients."""
        return float(np.mean([(self.bayes(x, name) == y).mean() for name, (x, y) in rows.items()]))


def paper(
    clients: int = 300,
    rows: int = 3000,
    d: int = 32,
    components: int = 3,
    *,
    alpha: float = 0.4,
    family: str = "gaussian",
    odd_family: str | None = None,
    tied: bool = True,
    spread: float = 1.0,
    parts: tuple[float, float, float] = (0.6, 0.2, 0.2),
    random_state: Any = None,
) -> Task:
    """The generator of the paper's text: unit covariance, centres uniform in the cube of half-width `spread`, random
    half-spaces.

    `odd_family` draws the last third of the clients from components of their own, of that family. With `tied=False`
    every density is combined with every half-space, and clients differ in the shares of these pairs.
    """
    rng = np.random.default_rng(random_state)
    common = _components(family, components, d, spread, rng)
    odd = _components(odd_family, components, d, spread, rng) if odd_family else common
    if not tied:
        common = common.crossed()
        odd = odd.crossed()
    n_odd = 0 if odd_family is None else clients // 3
    owners = [common] * (clients - n_odd) + [odd] * n_odd
    return _task(owners, np.full(clients, rows), alpha, parts, rng)


def public(
    clients: int = 300,
    rows: int | None = None,
    d: int = 32,
    components: int = 3,
    *,
    alpha: float = 0.4,
    parts: tuple[float, float, float] = (0.6, 0.2, 0.2),
    random_state: Any = None,
) -> Task:
    """The generator of the released code: covariance I / sqrt(d), half-spaces along differences of centres, lognormal sizes."""
    rng = np.random.default_rng(random_state)
    mu = rng.uniform(-1, 1, (components, d))
    other = [(m + rng.integers(1, components)) % components for m in range(components)]
    v = (mu[other] - mu) * rng.choice([-1, 1], components)[:, None]
    common = Components("gaussian", mu, np.full_like(mu, d**-0.25), v, (mu * v).sum(-1))
    sizes = np.minimum(100 + rng.lognormal(4, 2, clients), 1000).astype(int)
    if rows is not None:
        sizes = np.full(clients, rows)
    return _task([common] * clients, sizes, alpha, parts, rng)


def _components(family: str, count: int, d: int, spread: float, rng: np.random.Generator) -> Components:
    """Components of the inputs, each with the weights of its labelling rule."""
    if family not in FAMILIES:
        raise BadParameter(f"family={family!r} is not known: {suggest(family, FAMILIES)}")
    v = rng.standard_normal((count, d))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    if family == "beta":
        a, b = rng.uniform(1, 3, (2, count, d))
        return Components(family, a, b, v, (a / (a + b) * v).sum(-1))
    centres = rng.uniform(-spread, spread, (count, d))
    return Components(family, centres, np.ones((count, d)), v, (centres * v).sum(-1))


def _task(owners: list[Components], sizes: np.ndarray, alpha: float, parts: Any, rng: np.random.Generator) -> Task:
    """Clients with weights from a Dirichlet distribution, split into training, validation and test rows."""
    components = dict(zip(numbered(len(owners)), owners))
    weights = {name: rng.dirichlet(np.full(len(own.v), alpha)) for name, own in components.items()}
    drawn = {}
    for (name, own), size in zip(components.items(), sizes):
        drawn[name] = draw(own, weights[name], int(size), rng)
    train, valid, test = split(drawn, parts, rng)
    return Task(train, valid, test, weights, components)


def draw(parts: Components, weights: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """n rows and their labels from a mixture of components."""
    z = rng.choice(len(weights), n, p=weights)
    x = parts.frozen(z).rvs(random_state=rng)
    return x, parts.labels(x)[np.arange(n), z]


def split(rows: Rows, parts: tuple[float, float, float] = (0.6, 0.2, 0.2), random_state: Any = None) -> tuple:
    """Each client's rows in random order as (train, valid, test), by shares; every part has a row if there are three."""
    if abs(sum(parts) - 1) > 1e-9 or min(parts) < 0:
        raise BadParameter(f"parts={parts} must be three shares that add up to 1")
    rng = np.random.default_rng(random_state)
    out: tuple[Rows, Rows, Rows] = ({}, {}, {})
    for name, (x, y) in rows.items():
        order = rng.permutation(len(y))
        cuts = np.clip(np.round(np.cumsum(parts[:2]) * len(y)).astype(int), [1, 2], [len(y) - 2, len(y) - 1])
        for part, chosen in zip(out, np.split(order, cuts if len(y) > 2 else [len(y), len(y)])):
            part[name] = (x[chosen], y[chosen])
    return out
