"""Weights of candidates from their losses on rows that they were not fitted to, and the loss of the average itself. Nothing is sent.

A part of the weights is prior x tempered likelihood, which settles on the best candidate, the rest maximises the likelihood of the
average (stacking; Yao et al., 2018). The prior is what the other clients' rows say of the same candidates: where one shared model is
right for all of them, a client of few rows need not find that out by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LIKELY, TEMPERED = 0.3, 0.5  # share of the weights by likelihood, and its exponent with many rows
FEW_ROWS = 30.0  # rows whose likelihood is tempered twice as much
PSEUDO_ROWS = 3.0  # rows that follow the prior
JUDGING_ROWS = 1.0  # the same where candidates are judged for the others
PRIOR_CLIENTS = 0.5  # clients that follow the first prior, among the others
STEPS, POWER = 12, 1.9  # of EM, and by how much each of them is lengthened
UNEXPECTED = 0.1  # rows that constants are given on top: they bound what a row costs that no model expects
MOST = 0.9  # of a row's own share in the weights


def averaged(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (j,)
    """Weights of candidates from their losses (n, j)."""
    return LIKELY * likely(prior, losses, w) + (1 - LIKELY) * stacked(prior, losses, w)


def likely(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (j,)
    """Prior x likelihood, tempered since a few rows that one candidate happens to expect would decide otherwise."""
    rows = w.sum()
    log_weights = np.log(prior) - TEMPERED * rows / (rows + FEW_ROWS) * (w @ losses)
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())


def stacked(prior: np.ndarray, losses: np.ndarray, w: np.ndarray, pseudo: float = PSEUDO_ROWS) -> np.ndarray:  # (j,)
    """Weights by EM of the likelihood of the average, with `pseudo` rows that follow the prior."""
    likelihood = np.exp(losses.min(1, keepdims=True) - losses)
    rows, mix = w.sum() + pseudo, prior
    for _ in range(STEPS):
        gain = (pseudo * prior / mix + (w / (likelihood @ mix)) @ likelihood) / rows  # 1 at the optimum
        mix = mix * gain**POWER
        mix = mix / mix.sum()
    return mix


def shares(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (j,)
    """The share of the rows that each candidate explains, by stacked weights."""
    mix = stacked(prior, losses, w, JUDGING_ROWS)
    likelihood = np.exp(losses.min(1, keepdims=True) - losses)
    return np.asarray(mix * ((w / (likelihood @ mix)) @ likelihood) / w.sum())


class Said(NamedTuple):
    """What clients say of the candidates, summed over them."""

    shares: np.ndarray  # (j,) of the rows that each explains; their sum is the number of clients
    losses: np.ndarray  # (j,) log-losses
    rows: float


def prior_of_others(first: np.ndarray, fitted: np.ndarray, others: Said, rows: float) -> np.ndarray:  # (j,)
    """The prior of a client of `rows` rows from what the other clients say; `fitted` (j,) are candidates fitted to the client's own rows.

    Half of it is the mean of the shares, for clients that differ. The other half is first prior x tempered likelihood of all their
    rows, for clients that are alike: each of them has too few rows to tell a candidate that is only a little worse. What a client
    of few rows fits itself is not as good as the others say: in proportion to its rows, the first prior takes the place.
    """
    clients = others.shares.sum()
    mean = (others.shares + PRIOR_CLIENTS * first) / (clients + PRIOR_CLIENTS)
    log_weights = np.log(first) - TEMPERED * others.losses
    alike = np.exp(log_weights - log_weights.max())
    prior = 0.5 * mean + 0.5 * alike / alike.sum()
    trusted = min(1.0, rows * clients / others.rows) if others.rows > 0 else 1.0
    untrusted = (1 - trusted) * (prior @ fitted)
    return np.asarray(np.where(fitted, trusted * prior, prior) + untrusted * first)


def hedged(mix: np.ndarray, constant: np.ndarray, w: np.ndarray) -> np.ndarray:  # (j,)
    """Weights with UNEXPECTED rows more for the candidates that are `constant` (j,)."""
    if not constant.any():
        return mix
    more = UNEXPECTED * constant / constant.sum()
    return (w.sum() * mix + more) / (w.sum() + UNEXPECTED)


def loss_of_average(prior: np.ndarray, losses: np.ndarray, w: np.ndarray, mix: np.ndarray) -> float:
    """The mean loss of the average of candidates, each row by weights that the others would have given: one Newton step."""
    likelihood = np.exp(-losses)
    average = (likelihood @ mix).clip(min=1e-300)
    ratio = likelihood / average[:, None]  # (n, j)
    second = (ratio * w[:, None]).T @ ratio + np.diag(PSEUDO_ROWS * prior / np.maximum(mix, 1e-9) ** 2)
    solved = np.linalg.solve(second, ratio.T)  # (j, n)
    own = w * np.einsum("nj,jn->n", ratio, solved)
    change = (w * solved.sum(0) - own) / (1 - np.minimum(own, MOST))
    without = average * np.clip(1 + change, 1 - MOST, 1.0)
    return float(-(w @ np.log(without)) / w.sum())
