"""Cross-validation and comparison of models over a federation: fits without each fold, then one SUM of held-out losses.

A fold is a secret share of every client's rows (`maths.folds`), or a whole client. Fits send what their models send; those of
GLM, LinearRegression and LogisticRegression, with any penalties, all share the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from sklearn.base import clone

from unpooled.data.federate import as_federation
from unpooled.errors import BadParameter
from unpooled.federation import Federation
from unpooled.layers.folds import Folded
from unpooled.layers.together import together
from unpooled.maths.folds import FOLDS
from unpooled.models.glm import GRIDS, Scores
from unpooled.validation.held_out import held_out_losses
from unpooled.validation.scores import Comparison, Score, compared


def cross_validate(
    model: Any,
    data: Any,
    y: Any = None,
    *,
    cv: int | str = 5,
    by: Any = None,
    sample_weight: Any = None,
    n_jobs: int | None = None,
) -> Score:
    """Held-out losses of a model over a federation, with standard errors by site.

    Parameters
    ----------
    model : estimator
        It is cloned, not fitted. Over a network: GLM, LinearRegression, LogisticRegression or Cox; in process also any estimator with
        `predict_proba` and `classes_`, with `predict`, or with `score_samples`. Of Cox the loss is minus the partial likelihood per event
        (`partial_likelihood`), without a standard error; models with and without strata are not comparable.
    data, y, by, sample_weight
        What `fit` takes: clients by name, pooled rows and `by=`, or a Federation.
    cv : {2, 5, 10, "site"}, default=5
        Folds of every client's rows, chosen by a hash that only the client can tell; or "site": each client is predicted from the others.
    n_jobs : int or None, default=None
        Threads that work on clients at the same time, as in `federate`; a Federation has its own. Any value gives the same bits.

    Returns
    -------
    Score

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 2))
    >>> y = x @ [1.0, -1.0] + rng.normal(size=200)
    >>> score = up.cross_validate(up.LinearRegression(), x, y, by=np.arange(200) % 4)
    >>> round(score.mean["squared_error"], 2)
    1.01
    """
    roles: dict[str, Any] = {"by": by, "sample_weight": sample_weight, "n_jobs": n_jobs}
    return next(iter(compare({"model": model}, data, y, cv=cv, **roles).scores.values()))


def compare(
    models: Mapping[str, Any] | Sequence[Any],
    data: Any,
    y: Any = None,
    *,
    cv: int | str = 5,
    by: Any = None,
    sample_weight: Any = None,
    n_jobs: int | None = None,
) -> Comparison:
    """Models side by side on the same held-out rows, with standard errors of their differences by site.

    Parameters
    ----------
    models : dict of str to estimator, or list of estimators
        All must have the same metric: `log_loss` of GLM, LinearRegression and LogisticRegression.
    data, y, cv, by, sample_weight, n_jobs
        See `cross_validate`.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 1))
    >>> y = rng.negative_binomial(1, 1 / (1 + np.exp(1 + x[:, 0])))
    >>> up.compare({"poisson": up.GLM("poisson"), "nb": up.GLM("negative_binomial")}, x, y, by=np.arange(300) % 5).best
    'nb'
    """
    named = _named(models)
    fed = as_federation(data, y, by=by, sample_weight=sample_weight, n_jobs=n_jobs)
    _check(named, fed, cv)
    fitted = _fits(named, fed, cv)
    if all(hasattr(model, "partial_loglik") for model in named.values()):
        sums, metrics = _partial_likelihoods(fitted, fed, cv)
        return compared(fitted, sums, metrics, 1)  # sites have no losses of their own: no standard errors
    sums, metrics = held_out_losses(fitted, fed, cv)
    return compared(fitted, sums, metrics, len(fed.names))


def _named(models: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Models by name: the given one, or the class's, numbered where it occurs twice."""
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    given = list(models) if isinstance(models, Sequence) else [models]
    classes = [type(model).__name__ for model in given]
    named = {}
    for i, (name, model) in enumerate(zip(classes, given)):
        named[f"{name} {i + 1}" if classes.count(name) > 1 else name] = model
    return named


def _check(models: dict[str, Any], fed: Federation, cv: int | str) -> None:
    """Refuse no models, unknown folds, one client for cv="site", and models that cannot be scored over a network."""
    if not models:
        raise BadParameter("there is no model to validate: give at least one")
    if cv != "site" and (isinstance(cv, bool) or cv not in FOLDS):
        raise BadParameter(f"cv={cv!r} must be {', '.join(map(str, FOLDS))} or 'site'")
    if cv == "site" and len(fed.names) < 2:
        raise BadParameter("cv='site' predicts each client from the others, but there is only one: use cv=5")
    in_process = bool(fed.here())
    for name, model in models.items():
        if not (in_process or hasattr(model, "scoring") or hasattr(model, "partial_loglik")):
            raise BadParameter(
                f"{name} cannot be scored over a network: use GLM, LinearRegression, LogisticRegression or Cox"
            )


def _trainings(fed: Federation, cv: int | str) -> list[Federation]:
    """The federation without each fold."""
    if cv == "site":
        return [_without(fed, name) for name in fed.names]
    return [Folded(fed, int(cv), fold) for fold in range(int(cv))]


def _fits(models: dict[str, Any], fed: Federation, cv: int | str) -> dict[str, list]:
    """Every model without each fold; those that can share rounds do."""
    if cv == "site" or not all(hasattr(model, "scoring") for model in models.values()):
        return {name: [clone(model).fit(part) for part in _trainings(fed, cv)] for name, model in models.items()}
    cv = int(cv)
    works = []
    for model in models.values():
        works += [_work(model, cv, fold) for fold in range(cv)]
    fitted = iter(together(fed, works, GRIDS))
    return {name: list(islice(fitted, cv)) for name in models}


def _work(model: Any, folds: int, fold: int) -> Callable[[Federation], Any]:
    """What fits a model without one fold."""
    return lambda fed: clone(model).fit(Folded(fed, folds, fold))


def _without(fed: Federation, name: str) -> Federation:
    """The federation without one client; refused where masks would be lifted by the difference."""
    try:
        return fed.only([other for other in fed.names if other != name])
    except BadParameter as error:
        raise BadParameter(
            "cv='site' fits with and without each client, whose own sums follow from the difference: use cv=5 with masked sums"
        ) from error


# ---- held-out sums ----


def _partial_likelihoods(
    fitted: dict[str, list], fed: Federation, cv: int | str
) -> tuple[Scores, dict[str, tuple[str, ...]]]:
    """Of Cox regressions: what the rows of each fold add to the partial likelihood of all, under the fit without them."""
    parts = _trainings(fed, cv)
    n = np.zeros(len(parts))
    total = np.zeros((len(parts), len(fitted)))
    for j, models in enumerate(fitted.values()):
        for f, (model, training) in enumerate(zip(models, parts)):
            whole, events = model.partial_loglik(fed)
            seen, seen_events = model.partial_loglik(training)
            n[f] = events - seen_events
            total[f, j] = seen - whole
    nothing = np.zeros((total.shape[1] + 1) * (total.shape[1] + 2) // 2)
    return Scores(n, total, nothing), dict.fromkeys(fitted, ("partial_likelihood",))


# ---- means and standard errors ----
