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


def averaged(prior: np.ndarray, likelihood: np.ndarray, total: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Weights of candidates from their relative likelihoods (..., j, n) and total losses (..., j)."""
    return LIKELY * likely(prior, total, w) + (1 - LIKELY) * stacked(prior, likelihood, w)


def likely(prior: np.ndarray, total: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Prior x likelihood, tempered since a few rows that one candidate happens to expect would decide otherwise."""
    rows = w.sum(-1, keepdims=True)
    return _normalised(np.log(prior) - TEMPERED * rows / (rows + FEW_ROWS) * total)


def stacked(
    prior: np.ndarray, likelihood: np.ndarray, w: np.ndarray, pseudo: float = PSEUDO_ROWS
) -> np.ndarray:  # (..., j)
    """Weights by EM of the likelihood of the average, with `pseudo` rows that follow the prior."""
    mix = np.broadcast_to(prior, (*w.shape[:-1], prior.shape[-1]))
    held = pseudo * prior
    for _ in range(STEPS):
        gain = held / mix + _explained(mix, likelihood, w)  # the same of all candidates at the optimum
        mix = mix * gain**POWER
        mix = mix / mix.sum(-1, keepdims=True)
    return mix


def shares(prior: np.ndarray, likelihood: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """The share of the rows that each candidate explains, by stacked weights."""
    mix = stacked(prior, likelihood, w, JUDGING_ROWS)
    return np.asarray(mix * _explained(mix, likelihood, w) / w.sum(-1, keepdims=True))


def likelihoods(losses: np.ndarray) -> np.ndarray:
    """Likelihoods (..., j, n) relative to the largest one of each row.

    In 64 bits: in 32 the weights would depend, in their seventh digit, on which clients are stacked.
    """
    behind: np.ndarray = losses.min(-2, keepdims=True) - losses
    return np.exp(behind, out=behind)


def _explained(mix: np.ndarray, likelihood: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """The sum over rows of the likelihood of each candidate by that of the average."""
    return over_rows(likelihood, w / of_average(mix, likelihood))


def of_average(mix: np.ndarray, likelihood: np.ndarray) -> np.ndarray:  # (..., n)
    """The likelihood of the average of candidates, from their own (..., j, n)."""
    return np.asarray((mix[..., None, :] @ likelihood)[..., 0, :])


def over_rows(a: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """The sum over rows of a (..., j, n) times w (..., n)."""
    return np.asarray((a @ w[..., None])[..., 0])


class Said(NamedTuple):
    """What clients say of the candidates, summed over them."""

    shares: np.ndarray  # (..., j) of the rows that each explains; their sum is the number of clients
    losses: np.ndarray  # (..., j) log-losses
    rows: np.ndarray  # (..., 1)


def prior_of_others(first: np.ndarray, fitted: np.ndarray, others: Said, rows: np.ndarray) -> np.ndarray:  # (..., j)
    """The prior of a client of `rows` (..., 1) rows from what the other clients say; `fitted` (j,) are candidates fitted to the client's
    own rows.

    Half of it is the mean of the shares, for clients that differ. The other half is first prior x tempered likelihood of all their
    rows, for clients that are alike: each of them has too few rows to tell a candidate that is only a little worse. What a client
    of few rows fits itself is not as good as the others say: in proportion to its rows, the first prior takes the place.
    """
    clients = others.shares.sum(-1, keepdims=True)
    mean = (others.shares + PRIOR_CLIENTS * first) / (clients + PRIOR_CLIENTS)
    prior = 0.5 * mean + 0.5 * _normalised(np.log(first) - TEMPERED * others.losses)
    trusted = np.where(others.rows > 0, np.minimum(1.0, rows * clients / np.maximum(others.rows, 1e-9)), 1.0)
    untrusted = (1 - trusted) * (prior @ fitted)[..., None]
    return np.asarray(np.where(fitted, trusted * prior, prior) + untrusted * first)


def hedged(mix: np.ndarray, constant: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Weights with UNEXPECTED rows more for the candidates that are `constant` (j,)."""
    if not constant.any():
        return mix
    more = UNEXPECTED * constant / constant.sum()
    rows = w.sum(-1, keepdims=True)
    return (rows * mix + more) / (rows + UNEXPECTED)


def loss_of_average(prior: np.ndarray, likelihood: np.ndarray, w: np.ndarray, mix: np.ndarray) -> np.ndarray:  # (...)
    """The loss of the average of candidates, beyond that by the best one of each row, from their relative likelihoods (..., j, n).

    Each row has the weights that the others would have given: one Newton step.
    """
    average = of_average(mix, likelihood)
    weights = w.astype(np.float32)  # 32 bits are enough for what is a small part of the loss
    ratio = likelihood.astype(np.float32) / average.astype(np.float32)[..., None, :]  # (..., j, n)
    held = PSEUDO_ROWS * prior / np.maximum(mix, 1e-9) ** 2
    second = (ratio * weights[..., None, :]) @ np.swapaxes(ratio, -1, -2) + held[..., None] * np.eye(prior.shape[-1])
    inverse = np.linalg.inv(second).astype(np.float32)
    solved = inverse @ ratio  # (..., j, n)
    own = weights * np.einsum("...jn,...jn->...n", ratio, solved)
    change = (weights * of_average(inverse.sum(-2), ratio) - own) / (1 - np.minimum(own, MOST))
    without = np.log(average * np.minimum(np.maximum(1 + change, 1 - MOST), 1.0))
    return np.asarray(-(w * without).sum(-1))


def _normalised(log_weights: np.ndarray) -> np.ndarray:  # (..., j)
    """Weights of sum 1 from their logarithms."""
    weights = np.exp(log_weights - log_weights.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))
