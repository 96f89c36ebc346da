"""Every estimator that must obey the laws: a new model joins by adding one line.

A case is (make an estimator, make its data, laws it obeys beyond those of all).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import unpooled as up
from unpooled.data import synthetic


class Case(NamedTuple):
    make: Callable[[], Any]
    data: Callable[[], dict[str, Any]]  # clients by name: X, or (X, y)
    exact: bool = False  # the split of rows into clients does not matter
    monotone: bool = False  # history_ has a loglik that rises every round


def mixture_data(missing: float = 0.0) -> dict[str, np.ndarray]:
    return synthetic.mixture(400, 3, 3, separation=2.5, clients=7, missing=missing, random_state=3).clients


def gm(**options: Any) -> Callable[[], Any]:
    settings = {"n_components": 3, "random_state": 0, "max_iter": 12, "tol": 0.0, **options}
    return lambda: up.GaussianMixture(**settings)


def holes() -> dict[str, np.ndarray]:
    return mixture_data(0.2)


ESTIMATORS = {
    "GaussianMixture full": Case(gm(), mixture_data, exact=True, monotone=True),
    "GaussianMixture tied": Case(gm(covariance_type="tied"), mixture_data, exact=True, monotone=True),
    "GaussianMixture diag": Case(gm(covariance_type="diag"), mixture_data, exact=True, monotone=True),
    "GaussianMixture spherical": Case(gm(covariance_type="spherical"), mixture_data, exact=True, monotone=True),
    "GaussianMixture missing": Case(gm(), holes, exact=True, monotone=True),
    "GaussianMixture accelerated": Case(gm(accelerate=True), mixture_data, exact=True, monotone=True),
    "GaussianMixture candidates": Case(gm(n_components=[1, 2, 4], n_init=2), mixture_data, exact=True),
    "GaussianMixture personal": Case(gm(personal_weights=True), mixture_data, monotone=True),
    "GaussianMixture paper": Case(gm(aggregation="paper"), mixture_data),
    "GaussianMixture cohort": Case(gm(fraction=0.5), mixture_data),
}
