"""NumPy's thirteen quantile methods, as two ranks and a weight between the values at these ranks. Sends nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

OFFSETS = {  # Hyndman and Fan's continuous rules: alpha and beta of each
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}
METHODS = (
    "linear", "inverted_cdf", "averaged_inverted_cdf", "closest_observation", *OFFSETS, "lower", "higher", "midpoint",
    "nearest",
)  # fmt: skip


class Place(NamedTuple):
    """The position of a quantile: two ranks, counted from 0, and the weight of the upper one."""

    lower: np.ndarray
    upper: np.ndarray
    weight: np.ndarray  # of the upper one


def places(n: np.ndarray, p: np.ndarray, method: str = "linear") -> Place:
    """Ranks and weights of the quantiles p of n rows (arrays of one shape).

    They equal those of `numpy.quantile` to the bit.
    """
    n, p = np.broadcast_arrays(np.asarray(n, dtype=np.float64), np.asarray(p, dtype=np.float64))
    index = _index(n, p, method)
    lower = np.floor(index)
    weight = _weight(index - lower, index, method)
    last = np.maximum(n - 1, 0)
    beyond = index >= n - 1
    before = index < 0
    ends = np.where(beyond, last, 0.0)
    outside = beyond | before
    return Place(np.where(outside, ends, lower), np.where(outside, ends, lower + 1), weight)


def between(low: np.ndarray, high: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """low + weight (high - low), rounded as NumPy does."""
    distance = high - low
    return np.where(weight >= 0.5, high - distance * (1 - weight), low + distance * weight)


def _index(n: np.ndarray, p: np.ndarray, method: str) -> np.ndarray:
    """The rank, counted from 0; fractional if it lies between two rows."""
    if method in OFFSETS:
        alpha, beta = OFFSETS[method]
        return n * p + (alpha + p * (1 - alpha - beta)) - 1
    if method in ("inverted_cdf", "averaged_inverted_cdf"):
        at = n * p - 1
        return at if method == "averaged_inverted_cdf" else np.maximum(np.ceil(at), 0)
    if method == "closest_observation":
        at = n * p - 1.5
        whole = np.floor(at)
        stays = (at == whole) & (whole % 2 == 1)
        return np.maximum(np.where(stays, whole, whole + 1), 0)
    at = (n - 1) * p
    below, above = np.floor(at), np.ceil(at)
    ranks = {"linear": at, "lower": below, "higher": above, "nearest": np.around(at), "midpoint": 0.5 * (below + above)}
    return ranks[method]


def _weight(fraction: np.ndarray, index: np.ndarray, method: str) -> np.ndarray:
    """The weight of the upper of the two ranks."""
    if method == "averaged_inverted_cdf":
        return np.where(fraction == 0, 0.5, 1.0)
    return np.where(index % 1 == 0, 0.0, 0.5) if method == "midpoint" else fraction
