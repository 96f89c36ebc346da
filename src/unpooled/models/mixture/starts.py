"""Where the fits of a mixture start: from what the user gave, from cells, from k-means, from gathered centres, or at random.

What is sent is what `unpooled.models.initialization` sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models import initialization
from unpooled.models.initialization import Frame
from unpooled.models.mixture.checks import CENTRES


class StartSettings(NamedTuple):
    """What a model's parameters say about its starts."""

    init_params: str
    sizes: tuple[int, ...]
    n_init: int
    shape: str
    min_count: float
    weights: Any  # as the user gave them, or None
    means: Any
    precisions: Any
    max_iter: int = initialization.ROUNDS


def starts(fed: Federation, frame: Frame, settings: StartSettings, rng: np.random.Generator) -> list[Params]:
    """One start for each number of components and each of n_init; what the user gave overrides it."""
    if settings.means is not None:
        found: Sequence[Params] = [initialization.wide(frame, np.asarray(settings.means, dtype=float), settings.shape)]
    else:
        found = _by_init_params(fed, frame, settings, rng)
    return [_overridden(params, settings) for params in found]


def _overridden(params: Params, settings: StartSettings) -> Params:
    """The start with the weights and precisions that the user gave, matched to the nearest components."""
    weights = _as_array(settings.weights)
    precisions = _as_array(settings.precisions)
    if settings.means is None:  # the user cannot know the order in which components are found
        order = _best_order(params, weights, precisions, settings.shape)
        weights = None if weights is None else weights[order]
        precisions = precisions if precisions is None or settings.shape == "tied" else precisions[order]
    return initialization.override(params, weights, precisions, settings.shape)


def _as_array(given: Any) -> np.ndarray | None:
    """The given values as floats, None when there are none."""
    return None if given is None else np.asarray(given, dtype=float)


def _by_init_params(
    fed: Federation, frame: Frame, settings: StartSettings, rng: np.random.Generator
) -> Sequence[Params]:
    """One start per size and repetition, in the way that `init_params` names."""
    shape = settings.shape
    sizes = [k for k in settings.sizes for _ in range(settings.n_init)]
    if settings.init_params == "cells":
        quick = settings.max_iter < initialization.ROUNDS
        return initialization.cells_start(fed, frame, settings.sizes, settings.n_init, shape, rng, quick)
    if settings.init_params in CENTRES:
        return initialization.centre_starts(fed, frame, sizes, shape, settings.init_params, rng)
    if settings.init_params == "random":
        return [initialization.wide(frame, initialization.random_means(frame, k, rng), shape) for k in sizes]
    centres = initialization.centres(fed, frame, max(sizes), settings.min_count)
    return [initialization.from_centres(frame, initialization.cluster_centres(centres, k, rng), shape) for k in sizes]


def _best_order(params: Params, weights: Any, precisions: Any, shape: str) -> np.ndarray:
    """Which of the given weights and precisions belongs to each component found: those that describe it best."""
    found = to_numpy(params.weights)
    costs = np.zeros((len(found), len(found)))  # (found, given)
    if weights is not None:
        costs -= np.outer(found, np.log(np.maximum(weights, 1e-12)))
    if precisions is not None and shape != "tied":
        costs += found[:, None] * _misfit(params, precisions, shape)
    return linear_sum_assignment(costs)[1]


def _misfit(params: Params, precisions: np.ndarray, shape: str) -> np.ndarray:
    """tr(P_j S_i) - log det P_j: how badly rows with covariance i are described by precision j, (found, given)."""
    k, d = params.means.shape
    covs = to_numpy(gaussian.full_covs(params, shape))
    if shape != "full":
        precisions = np.broadcast_to(precisions.reshape(k, -1), (k, d))[:, :, None] * np.eye(d)
    traces = np.einsum("jab,iba->ij", precisions, covs)
    return traces - np.linalg.slogdet(precisions)[1]
