"""Rows of each family with a known law, and ways to split them."""

import numpy as np

FAMILIES = ("normal", "binomial", "poisson", "gamma", "negative_binomial")
NB_ALPHA = 0.5


def problem(family: str, n: int = 900, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """x (n, 4), of which one column is far from the origin, and y (n,)."""
    rng = np.random.default_rng(seed)
    centre = np.array([0.0, 5.0, 100.0, 0.0])
    x = rng.normal(size=(n, 4)) * [1.0, 2.0, 0.5, 1.0] + centre
    eta = 0.3 + (x - centre) @ [0.3, -0.2, 0.4, 0.1]
    mean = np.exp(eta)
    if family == "normal":
        return x, eta + rng.normal(size=n)
    if family == "binomial":
        return x, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    if family == "poisson":
        return x, rng.poisson(mean).astype(float)
    if family == "gamma":
        return x, rng.gamma(2.0, 0.5 / (3 + 0.5 * np.tanh(eta)))
    return x, rng.negative_binomial(2, 2 / (2 + mean)).astype(float)


def ragged(n: int, clients: int, seed: int = 1) -> np.ndarray:
    """The client of each row: sizes differ, each has a row at least."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(clients, 0.7))
    by = rng.choice(clients, n, p=share)
    by[rng.permutation(n)[:clients]] = np.arange(clients)
    return by
