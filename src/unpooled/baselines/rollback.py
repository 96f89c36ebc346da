"""Clients' own models that became much worse in a round go back, judged by the rows held out or, without, by those that train.

Nothing is sent.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array, like, namespace, to_numpy
from unpooled.client import Client
from unpooled.learners import Rows, Trainer

MUCH_WORSE = 0.1  # of the log-likelihood


def much_worse(learner: Trainer, client: Client, rows: Rows, before: Array, after: Array) -> Array:  # (..., 1, 1) bool
    """Whether the models `after` (..., 1, p) lost much of the log-likelihood of the models `before`, or diverged."""

    def loglik(models: Array) -> np.ndarray:
        """The log-likelihood (...,) that is reported of some models."""
        return _finite(learner.reported(learner.log_likelihood(models, rows)[..., 0], client, rows))

    old = loglik(before)
    new = loglik(after)
    lost = new < old - MUCH_WORSE * np.abs(old)
    return like(lost, rows.x)[..., None, None] > 0


def keep_best(client: Client, theta: Array, loglik: Array) -> Array:
    """The models (..., 1, p) to go on from; the best ones so far, and their log-likelihoods (...,), stay in the client's state."""
    xp = namespace(theta)
    now = _finite(loglik)
    best_loglik = to_numpy(client.state.get("best_loglik", np.full(now.shape, -1e300)))
    best = like(client.state.get("best", theta), theta)
    better = now >= best_loglik
    lost = now < best_loglik - MUCH_WORSE * np.abs(best_loglik)
    client.state["best"] = xp.where(like(better, theta)[..., None, None] > 0, theta, best)
    client.state["best_loglik"] = np.maximum(now, best_loglik)
    return xp.where(like(lost, theta)[..., None, None] > 0, best, theta)


def _finite(loglik: Array) -> np.ndarray:
    """Log-likelihoods (...,) in float64, those that are not finite as very small numbers."""
    return np.nan_to_num(to_numpy(loglik).astype(np.float64), nan=-1e300, posinf=-1e300, neginf=-1e300)
