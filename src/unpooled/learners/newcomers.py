"""New clients without labels: which part of a fitted model their inputs resemble. One SUM at the end of a run.

The SUM has, for each part (a concept, a cluster, a learner of a mixture), the number of rows, the sums of the columns and of their
squares, and the squared means of the clients, weighted by their rows: these give the variance between clients of one part. A new client's
means are compared with those of each part, in units of that variance. If the parts' inputs do not differ, the shared model is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.tree import message

COLUMNS_THAT_COUNT = 10.0  # most effective columns: columns are correlated, so more of them add no evidence
SURE = 0.9  # least probability of a part for a new client to be assigned to it
BORROWED = 0.5  # pseudo-rows of each part with the overall variance, as a share of the mean rows per part
FAR = 3.0  # mean distance, in standard deviations, above which rows do not belong to a part


@message("learners.PartMoments")
class PartMoments(NamedTuple):
    """Inputs by part."""

    n: Float[Array, "k", ">=0 rows"]
    x: Float[Array, "k d"]  # sum of x
    xx: Float[Array, "k d"]  # sum of x^2
    squares: Float[Array, "k d"]  # sum over rows of the squared mean of their client


@client("learners.part_moments", SUM)
def part_moments(down: None, client: Client, *, weights: str, ids: list) -> PartMoments:
    """Rows, sums and squares of the columns, for each part in the client's proportions."""
    x, w = (to_numpy(a).astype(np.float64) for a in (client.x, client.w))  # (..., n, d), (..., n)
    equal = np.ones((*w.shape[:-1], len(ids)))
    share = to_numpy(client.state[weights])[..., ids] if weights in client.state else equal
    share = share / share.sum(-1, keepdims=True).clip(min=1e-300)  # (..., k)
    total = w.sum(-1)[..., None]
    sums = _summed(w, x)
    squares = _summed(w, x**2)
    own_means = sums**2 / total.clip(min=1e-300)
    parts = (share[..., :, None] * a[..., None, :] for a in (sums, squares, own_means))
    return PartMoments(share * total, *parts)


def _summed(w: np.ndarray, x: np.ndarray) -> np.ndarray:  # (..., d)
    """Sums over rows with weights w."""
    return (w[..., None, :] @ x)[..., 0, :]


class Parts(NamedTuple):
    """Means and variances of the inputs of each of k parts."""

    mean: np.ndarray  # (k, d)
    between: np.ndarray  # (k, d) variance of the clients' means
    within: np.ndarray  # (k, d) variance of a client's rows
    shares: np.ndarray  # (k,) of the rows


def parts_of(total: PartMoments) -> Parts:
    """Means and variances of the parts; the variance between clients is shrunk to that of all parts."""
    n = to_numpy(total.n)[:, None]
    rows = max(float(n.sum()), 1e-12)
    mean = to_numpy(total.x) / np.maximum(n, 1e-12)
    between = np.maximum(to_numpy(total.squares) / np.maximum(n, 1e-12) - mean**2, 0.0)
    overall = (n * between).sum(0) / rows
    borrowed = BORROWED * rows / len(n)
    between = (n * between + borrowed * overall) / (n + borrowed)
    within = np.maximum(to_numpy(total.xx) / np.maximum(n, 1e-12) - mean**2, 0.0)
    return Parts(mean, between, within, to_numpy(total.n) / max(float(n.sum()), 1e-12))


def probabilities(parts: Parts, x: np.ndarray) -> np.ndarray:  # (k,)
    """The probability of each part, from the means of a client's rows x (n, d)."""
    log_p = -0.5 * (_squared(parts, x) + np.log(_variance(parts, len(x)))).sum(1)
    log_p = log_p * min(1.0, COLUMNS_THAT_COUNT / x.shape[1]) + np.log(np.maximum(parts.shares, 1e-12))
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def distance(parts: Parts, x: np.ndarray) -> np.ndarray:  # (k,)
    """Root mean square distance of the means of rows x (n, d) from each part's, in standard deviations."""
    return np.sqrt(_squared(parts, x).mean(1))


def _squared(parts: Parts, x: np.ndarray) -> np.ndarray:
    """Squared distances of the rows' mean from each part's, in units of their variance."""
    return (x.mean(0) - parts.mean) ** 2 / _variance(parts, len(x))


def _variance(parts: Parts, n: int) -> np.ndarray:
    """The variance that a mean of n rows has about a part's mean."""
    floor = 1e-3 * parts.within.mean(0) + 1e-12
    return parts.between + parts.within / n + floor
