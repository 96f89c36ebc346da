"""Fitted models for other programs: as scikit-learn estimators, and as JSON. Sends nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import is_torch, to_numpy
from unpooled.errors import BadParameter

COMMON = ("n_features_in_", "feature_names_in_", "n_iter_")
MIXTURE = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_", "converged_", "lower_bound_")


def to_sklearn(model: Any) -> Any:
    """A fitted scikit-learn estimator that predicts what this model does.

    Parameters
    ----------
    model : GaussianMixture, OpenMixture, LinearRegression, LogisticRegression, GLM, BayesianRegression or PCA
        A fitted model. An OpenMixture of topics, a GLM other than least squares and logistic regression, and a
        BayesianRegression with groups or several outputs have no counterpart.

    Returns
    -------
    estimator : sklearn.base.BaseEstimator
        A fitted estimator of scikit-learn's own class. Where columns held texts it takes their indicators, which
        `feature_names_in_` names. A logistic GLM predicts means, which are the second column of its `predict_proba`.
    """
    check_is_fitted(model)
    for cls in type(model).__mro__:
        if cls.__name__ in _MAKERS:
            made = _MAKERS[cls.__name__](model)
            if hasattr(model, "design_columns_"):
                made.feature_names_in_ = np.asarray(model.columns_, dtype=object)
            return _with(made, model, COMMON)
    raise _no_counterpart(model)


def _no_counterpart(model: Any, why: str = "") -> BadParameter:
    """The error for a model that scikit-learn does not have; `why` follows the model's name."""
    known = ", ".join(_MAKERS)
    name = f"{type(model).__name__}{why}"
    return BadParameter(f"{name} has no counterpart in scikit-learn: to_sklearn() is for {known}; to_json() for all")


def to_json(model: Any) -> str:
    """A fitted model as JSON: its class, its parameters and its fitted numbers.

    Parameters
    ----------
    model : Estimator
        A fitted model whose fitted attributes are numbers, strings and arrays.

    Returns
    -------
    text : str
        A JSON object with the keys "class", "parameters" and "fitted".
    """
    check_is_fitted(model)
    fitted = {k: v for k, v in vars(model).items() if k.endswith("_") and not k.startswith("_") and k != "history_"}
    body = {"class": type(model).__name__, "parameters": model.get_params(deep=False), "fitted": fitted}
    try:
        return json.dumps(_lists(body), allow_nan=True)
    except TypeError as error:
        raise BadParameter(f"{type(model).__name__} holds more than numbers ({error}): use save() instead") from error


def _lists(value: Any) -> Any:
    """Arrays as lists, named tuples as objects."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(k): _lists(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(v) for v in value]
    if is_torch(value):
        value = to_numpy(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def _mixture(model: Any) -> Any:
    """scikit-learn's GaussianMixture with the fitted parameters."""
    from sklearn.mixture import GaussianMixture

    made = GaussianMixture(len(model.weights_), covariance_type=model.covariance_type)
    for name in MIXTURE:
        if hasattr(model, name):
            value = getattr(model, name)
            is_array = name.endswith(("s_", "cholesky_"))
            setattr(made, name, to_numpy(value) if is_array else value)
    return made


def _full_mixture(model: Any) -> Any:
    """scikit-learn's GaussianMixture with the Gaussians of an OpenMixture; refused if it found another structure."""
    from sklearn.mixture import GaussianMixture

    if getattr(model, "structure_", "gaussians") != "gaussians":
        raise _no_counterpart(model, f" of {model.structure_}")
    covs = to_numpy(model.covariances_)
    covariance_type = {3: "full", 2: "diag", 1: "spherical"}[covs.ndim]
    full = covariance_type == "full"
    made = GaussianMixture(len(covs), covariance_type=covariance_type)
    made.weights_ = to_numpy(model.weights_)
    made.means_ = to_numpy(model.means_)
    made.covariances_ = covs
    made.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(covs)).swapaxes(1, 2) if full else covs**-0.5
    made.precisions_ = np.linalg.inv(covs) if full else 1 / covs
    made.converged_ = True
    return made


def _glm(model: Any) -> Any:
    """scikit-learn's linear or logistic regression, by the family of the GLM."""
    from sklearn.linear_model import LogisticRegression

    link = model.link or {"normal": "identity", "binomial": "logit"}.get(model._family)
    if model.offset is None and (model._family, link) == ("normal", "identity"):
        return _linear(model)
    if model.offset is not None or (model._family, link) != ("binomial", "logit"):
        raise _no_counterpart(model, f" of family {model._family!r}")
    made = LogisticRegression(C=np.inf)
    made.coef_ = np.atleast_2d(model.coef_)
    made.intercept_ = np.atleast_1d(model.intercept_)
    made.classes_ = np.array([0, 1])
    return made


def _bayesian(model: Any) -> Any:
    """scikit-learn's LinearRegression with the posterior means of the coefficients."""
    if np.size(model.coef_) != model.n_features_in_ or getattr(model, "group_by", None) is not None:
        raise _no_counterpart(model, " with groups, products of columns or several outputs")
    made = _linear(model)
    made.coef_ = np.ravel(to_numpy(model.coef_))
    made.intercept_ = float(np.ravel(to_numpy(model.intercept_))[0])
    return made


def _pca(model: Any) -> Any:
    """scikit-learn's PCA with the fitted axes."""
    from sklearn.decomposition import PCA

    made = PCA(len(model.components_), whiten=model.whiten)
    variances = ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_")
    return _with(made, model, ("components_", "mean_", "n_components_", "n_samples_", *variances))


def _linear(model: Any) -> Any:
    """scikit-learn's LinearRegression with the fitted coefficients."""
    from sklearn.linear_model import LinearRegression

    made = LinearRegression(fit_intercept=bool(np.any(model.intercept_)))
    made.coef_ = np.asarray(model.coef_)
    made.intercept_ = np.asarray(model.intercept_)[()]
    return made


def _logistic(model: Any) -> Any:
    """scikit-learn's LogisticRegression with the fitted coefficients and classes."""
    from sklearn.linear_model import LogisticRegression

    made = LogisticRegression()
    made.coef_ = np.atleast_2d(model.coef_)
    made.intercept_ = np.atleast_1d(model.intercept_)
    made.classes_ = np.asarray(model.classes_)
    return made


def _with(made: Any, model: Any, names: tuple[str, ...]) -> Any:
    """`made` with copies of the attributes `names` that `model` has."""
    for name in names:
        if hasattr(model, name):
            setattr(made, name, getattr(model, name))
    return made


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "GaussianMixture": _mixture,
    "LinearRegression": _linear,
    "LogisticRegression": _logistic,
    "GLM": _glm,
    "BayesianRegression": _bayesian,
    "PCA": _pca,
    "OpenMixture": _full_mixture,
}
