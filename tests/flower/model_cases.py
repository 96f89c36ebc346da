"""Every public estimator, small, with the data it wants: fitted in process and over Flower it must be the same model."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import unpooled
from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import Client
from unpooled.estimator import Estimator

# how far the two may be apart, relative to the largest number of an attribute
CLOSED, SCORES, GRADIENT = (1e-12, 1e-9, 1e-6)


class Case(NamedTuple):
    parameters: dict[str, Any]
    label: str | None = None  # class, value
    rtol: float = CLOSED
    life: bool = False  # two columns more: time and event
    visits: bool = False  # rows are (site, date, value)


CASES = {
    "GaussianMixture": Case({"n_components": 3, "max_iter": 5}),
    "MixedMixture": Case({"n_components": 3, "max_iter": 5}),
    "FedEM": Case({"max_iter": 4}),
    "VRFedEM": Case({"max_iter": 4}),
    "FedMissEM": Case({"rank": 2, "max_iter": 4}, rtol=GRADIENT, visits=True),
    "MixtureImputer": Case({"n_components": 2, "max_iter": 4}),
    "FedGMM": Case({"max_iter": 5}, "class", GRADIENT),
    "FedGEM": Case({"max_iter": 3}),
    "OpenMixture": Case({"max_iter": 3}),
    "BayesianRegression": Case({}, "value"),
    "FedBNR": Case({"max_iter": 2}, "value"),
    "FedConceptEM": Case({"max_iter": 3}, "class", GRADIENT),
    "GLM": Case({"cov_type": "site"}, "value", SCORES),
    "LinearRegression": Case({}, "value"),
    "LogisticRegression": Case({}, "class"),
    "Describe": Case({"min_count": 2}),
    "Cox": Case({"duration": 3, "event": 4}, life=True),
    "KaplanMeier": Case({"duration": 3, "event": 4}, life=True),
    "PCA": Case({"n_components": 2}),
    "Pooling": Case({"em_rounds": 3, "cv": 2}, "value", SCORES),
}


def estimators() -> dict[str, type[Estimator]]:
    """name -> class of every public estimator."""
    found = {}
    for name, module in unpooled._PUBLIC.items():
        value = getattr(import_module(module), name)
        if isinstance(value, type) and issubclass(value, Estimator):
            found[name] = value
    return found


def case(name: str) -> Case:
    return CASES.get(name, Case({}))


def build(name: str) -> Estimator:
    cls, parameters = estimators()[name], dict(case(name).parameters)
    known = cls._get_param_names()
    parameters = {k: v for k, v in {**parameters, "random_state": 0}.items() if k in known}
    return cls(**parameters)


def clients(name: str, tables: dict[str, np.ndarray]) -> list[Client]:
    """The tables as clients, with labels where the model learns from them."""
    return [Client(n, rows(name, x), labels(name, x)) for n, x in tables.items()]


def rows(name: str, x: np.ndarray) -> np.ndarray:
    """The table itself, or visits made from it: sites, dates and counts."""
    if case(name).life:
        time = np.ceil(20 * np.exp(np.sin(7 * x.sum(1)) - x[:, 0] / 5))
        return np.column_stack([x, time, np.cos(5 * x[:, 1]) > -0.5])
    if not case(name).visits:
        return x
    n = np.arange(len(x))
    return np.stack([n % 8, n // 8 % 12, np.floor(np.abs(x[:, 0]))], 1).astype(np.float64)


def labels(name: str, x: np.ndarray) -> np.ndarray | None:
    kind = case(name).label
    if kind is None:
        return None
    return (x.sum(1) > 3).astype(np.int64) if kind == "class" else np.sin(x[:, 0]) + 0.1 * x[:, 1]


def distance(a: Estimator, b: Estimator) -> float:
    """The largest difference of any fitted number, relative to the largest of its attribute; inf if they are not alike.

    What clients keep to themselves (a dict by client, empty over a network) is not the model.
    """
    worst = 0.0
    for name in sorted(k for k in vars(a) if k.endswith("_") and k not in ("history_", "columns_")):
        if isinstance(vars(b)[name], dict) and not vars(b)[name]:
            continue
        ours, theirs = tree.leaves(_numbers(vars(a)[name])), tree.leaves(_numbers(vars(b)[name]))
        if len(ours) != len(theirs) or any(np.shape(x) != np.shape(y) for x, y in zip(ours, theirs)):
            return float("inf")
        for x, y in zip(ours, theirs):
            scale = max(float(np.abs(x).max(initial=0)), 1e-300)
            worst = max(worst, float(np.abs(x - y).max(initial=0)) / scale)
    return worst


def _numbers(value: Any) -> Any:
    """The numbers of a fitted attribute; what is no tree of numbers counts as nothing."""
    try:
        arrays = [to_numpy(leaf) for leaf in tree.leaves(value)]
    except (TypeError, ValueError):
        return []
    return [a.astype(np.float64) for a in arrays if a.dtype.kind in "fiub"]
