"""From a model to its private counterpart: `GaussianMixture(3).fit(Private(fed, ...))` is fitted by `PrivateGaussianMixture`.

The counterpart does the rounds, so that checkpoints hold its state; what it has learned is then given to the model that was asked for.
Parameters that the private fit does not have are refused in one sentence, before anything is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, Moment
from unpooled.federation import Federation
from unpooled.models.private.mixture import LOOKS, PrivateGaussianMixture
from unpooled.models.private.regression import PrivateRegression

FREE = {  # parameters that a private fit uses or ignores; every other one must have its default
    "GaussianMixture": {
        "n_components",
        "covariance_type",
        "reg_covar",
        "max_iter",
        "tol",
        "n_init",
        "random_state",
        "min_count",
    },
    "MixtureImputer": {"n_components", "max_iter", "choose_iter", "tol", "hide", "prior", "random_state"},
    "BayesianRegression": {"random_state", "missing", "recalibrate"},
}


def fit_private(model: Estimator, fed: Federation) -> Estimator:
    """Fit a model's private counterpart, and give the model what was learned.

    Parameters
    ----------
    model : Estimator
        A `GaussianMixture`, `MixtureImputer`, `BayesianRegression`, or a private model.
    fed : Federation
        With a `Private` layer in it.

    Returns
    -------
    model : Estimator
        The same, fitted.
    """
    for _ in rounds_private(model, fed):
        pass
    return model


def rounds_private(model: Estimator, fed: Federation, saved: Moment | None = None) -> Iterator[Moment]:
    """What `Estimator.rounds` does, by the private counterpart."""
    twin = counterpart(model)
    yield from twin.rounds(fed, saved)
    if twin is model:
        return
    for name in [n for n in vars(model) if n.endswith("_")]:  # of an earlier fit
        delattr(model, name)
    for name, value in vars(twin).items():
        if name.endswith("_") and not name.startswith("_"):
            setattr(model, name, value)
    if hasattr(twin, "_fed"):
        model._fed = twin._fed  # type: ignore[attr-defined]
    if type(model).__name__ == "MixtureImputer":
        model.central_ = np.full(200, 1 / 200)  # type: ignore[attr-defined]  # intervals as the mixture has them


def counterpart(model: Estimator) -> Estimator:
    """The estimator that fits the same model privately, or the refusal of one that has none."""
    name = type(model).__name__
    if type(model).__module__.startswith("unpooled.models.private"):
        return model
    if name not in MAKERS:
        text = f"{name} has no private fit: its answers have no bound on what one row can change"
        raise BadParameter(f"{text}; {', '.join(MAKERS)} and the models of unpooled.models.private have one")
    _check_left_alone(model, name)
    return MAKERS[name](model)


def _check_left_alone(model: Estimator, name: str) -> None:
    """Refuse parameters that a private fit cannot honour and that are not at their defaults."""
    defaults = type(model)().get_params(deep=False)
    for key, value in model.get_params(deep=False).items():
        if key not in FREE[name] and not _same(value, defaults[key]):
            raise BadParameter(f"{key}= is not available in a private fit of {name}: leave it at its default")


def _same(a: Any, b: Any) -> bool:
    """Whether two parameters are equal, arrays included."""
    return a is b or (type(a) is type(b) and bool(np.all(a == b)))


def _mixture(model: Any) -> Estimator:
    """The private mixture with the settings of `model`."""
    shape = getattr(model, "covariance_type", "full")
    reg = getattr(model, "reg_covar", 1e-6)
    looks = min(int(model.max_iter), LOOKS[1])
    return PrivateGaussianMixture(
        model.n_components, covariance_type=shape, reg_covar=reg, max_iter=looks, random_state=model.random_state
    )


def _regression(model: Any) -> Estimator:
    """The private regression with the settings of `model`."""
    return PrivateRegression(random_state=model.random_state)


MAKERS: dict[str, Callable[[Any], Estimator]] = {
    "GaussianMixture": _mixture,
    "MixtureImputer": _mixture,
    "BayesianRegression": _regression,
}
