"""Weights of candidates from their losses on rows that they were not fitted to, and the loss of the average itself. Nothing is sent.

A part of the weights is prior x tempered likelihood, which settles on the best candidate, the rest maximises the likelihood of the
average (stacking; Yao et al., 2018). The prior is what the other clients' rows say of the same candidates: where one shared model is
right for all of them, a client of few rows need not find that out by itself.

Losses of several clients may be stacked on leading axes; rows of weight 0 do not count.
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


def averaged(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Weights of candidates from their losses (..., n, j)."""
    return LIKELY * likely(prior, losses, w) + (1 - LIKELY) * stacked(prior, losses, w)


def likely(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Prior x likelihood, tempered since a few rows that one candidate happens to expect would decide otherwise."""
    rows = w.sum(-1, keepdims=True)
    return _normalised(np.log(prior) - TEMPERED * rows / (rows + FEW_ROWS) * _over_rows(w, losses))


def stacked(
    prior: np.ndarray, losses: np.ndarray, w: np.ndarray, pseudo: float = PSEUDO_ROWS
) -> np.ndarray:  # (..., j)
    """Weights by EM of the likelihood of the average, with `pseudo` rows that follow the prior."""
    likelihood = np.exp(losses.min(-1, keepdims=True) - losses)
    rows, mix = w.sum(-1, keepdims=True) + pseudo, np.broadcast_to(prior, (*w.shape[:-1], prior.shape[-1]))
    for _ in range(STEPS):
        gain = (pseudo * prior / mix + _explained(mix, likelihood, w)) / rows  # 1 at the optimum
        mix = mix * gain**POWER
        mix = mix / mix.sum(-1, keepdims=True)
    return mix


def shares(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """The share of the rows that each candidate explains, by stacked weights."""
    mix = stacked(prior, losses, w, JUDGING_ROWS)
    likelihood = np.exp(losses.min(-1, keepdims=True) - losses)
    return np.asarray(mix * _explained(mix, likelihood, w) / w.sum(-1, keepdims=True))


def _explained(mix: np.ndarray, likelihood: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """The sum over rows of the likelihood of each candidate by that of the average."""
    average = (likelihood @ mix[..., None])[..., 0]
    return _over_rows(w / average, likelihood)


class Said(NamedTuple):
    """What clients say of the candidates, summed over them."""

    shares: np.ndarray  # (..., j) of the rows that each explains; their sum is the number of clients
    losses: np.ndarray  # (..., j) log-losses
    rows: np.ndarray  # (..., 1)


def prior_of_others(
    first: np.ndarray, fitted: np.ndarray, others: Said, rows: np.ndarray
) -> np.ndarray:  # (..., j)
    """The prior of a client of `rows` (..., 1) rows from what the other clients say; `fitted` (j,) are candidates fitted to the client's
    own rows.

    Half of it is the mean of the shares, for clients that differ. The other half is first prior x tempered likelihood of all their
    rows, for clients that are alike: each of them has too few rows to tell a candidate that is only a little worse. What a client
    of few rows fits itself is not as good as the others say: in proportion to its rows, the first prior takes the place.
    """
    clients = others.shares.sum(-1, keepdims=True)
    mean = (others.shares + PRIOR_CLIENTS * first) / (clients + PRIOR_CLIENTS)
    prior = 0.5 * mean + 0.5 * _normalised(np.log(first) - TEMPERED * others.losses)
    trusted = np.minimum(1.0, rows * clients / np.maximum(others.rows, 1e-9))
    untrusted = (1 - trusted) * (prior @ fitted)[..., None]
    return np.asarray(np.where(fitted, trusted * prior, prior) + untrusted * first)


def hedged(mix: np.ndarray, constant: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Weights with UNEXPECTED rows more for the candidates that are `constant` (j,)."""
    if not constant.any():
        return mix
    more, rows = UNEXPECTED * constant / constant.sum(), w.sum(-1, keepdims=True)
    return (rows * mix + more) / (rows + UNEXPECTED)


def loss_of_average(prior: np.ndarray, losses: np.ndarray, w: np.ndarray, mix: np.ndarray) -> np.ndarray:  # (...)
    """The mean loss of the average of candidates, each row by weights that the others would have given: one Newton step."""
    likelihood = np.exp(-losses)
    average = (likelihood @ mix[..., None]).clip(min=1e-300)
    ratio = likelihood / average  # (..., n, j)
    held = PSEUDO_ROWS * prior / np.maximum(mix, 1e-9) ** 2
    second = np.swapaxes(ratio * w[..., None], -1, -2) @ ratio + held[..., None] * np.eye(prior.shape[-1])
    solved = ratio @ np.linalg.inv(second)  # (..., n, j)
    own = w * np.einsum("...nj,...nj->...n", ratio, solved)
    change = (w * solved.sum(-1) - own) / (1 - np.minimum(own, MOST))
    without = average[..., 0] * np.clip(1 + change, 1 - MOST, 1.0)
    return np.asarray(-(w * np.log(without)).sum(-1) / w.sum(-1))


def _over_rows(w: np.ndarray, a: np.ndarray) -> np.ndarray:  # (..., j)
    """The sum over rows of w (..., n) times a (..., n, j)."""
    return np.asarray((w[..., None, :] @ a)[..., 0, :])


def _normalised(log_weights: np.ndarray) -> np.ndarray:  # (..., j)
    """Weights of sum 1 from their logarithms."""
    weights = np.exp(log_weights - log_weights.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))
