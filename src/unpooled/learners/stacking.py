"""Weights of candidates from their losses on rows that they were not fitted to, and the loss of the average itself. Nothing is sent.

Half of the weights is prior x tempered likelihood, which settles on the best candidate, the rest maximises the likelihood of the
average (stacking; Yao et al., 2018). Losses of several clients may be stacked on leading axes; rows of weight 0 do not count.
"""

from __future__ import annotations

import numpy as np

LIKELY, TEMPERED = 0.5, 0.5  # share of the weights by likelihood, and its exponent with many rows
FEW_ROWS = 30.0  # rows whose likelihood is tempered twice as much
PSEUDO_ROWS = 3.0  # rows that follow the prior
STEPS, POWER = 20, 1.9  # of EM, and by how much each of them is lengthened
UNEXPECTED = 0.1  # rows that constants are given on top: they bound what a row costs that no model expects
MOST = 0.9  # of a row's own share in the weights


def averaged(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Weights of candidates from their losses (..., n, j)."""
    return LIKELY * likely(prior, losses, w) + (1 - LIKELY) * stacked(prior, losses, w)


def likely(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Prior x likelihood, tempered since a few rows that one candidate happens to expect would decide otherwise."""
    rows = w.sum(-1, keepdims=True)
    log_weights = np.log(prior) - TEMPERED * rows / (rows + FEW_ROWS) * _over_rows(w, losses)
    weights = np.exp(log_weights - log_weights.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def stacked(prior: np.ndarray, losses: np.ndarray, w: np.ndarray) -> np.ndarray:  # (..., j)
    """Weights by EM of the likelihood of the average, with PSEUDO_ROWS rows that follow the prior."""
    likelihood = np.exp(losses.min(-1, keepdims=True) - losses)
    rows, mix = w.sum(-1, keepdims=True) + PSEUDO_ROWS, np.broadcast_to(prior, (*w.shape[:-1], len(prior)))
    for _ in range(STEPS):
        average = (likelihood @ mix[..., None])[..., 0]
        gain = (PSEUDO_ROWS * prior / mix + _over_rows(w / average, likelihood)) / rows  # 1 at the optimum
        mix = mix * gain**POWER
        mix = mix / mix.sum(-1, keepdims=True)
    return mix


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
    second = np.swapaxes(ratio * w[..., None], -1, -2) @ ratio + held[..., None] * np.eye(len(prior))
    solved = ratio @ np.linalg.inv(second)  # (..., n, j)
    own = w * np.einsum("...nj,...nj->...n", ratio, solved)
    change = (w * solved.sum(-1) - own) / (1 - np.minimum(own, MOST))
    without = average[..., 0] * np.clip(1 + change, 1 - MOST, 1.0)
    return np.asarray(-(w * np.log(without)).sum(-1) / w.sum(-1))


def _over_rows(w: np.ndarray, a: np.ndarray) -> np.ndarray:  # (..., j)
    """The sum over rows of w (..., n) times a (..., n, j)."""
    return np.asarray((w[..., None, :] @ a)[..., 0, :])
