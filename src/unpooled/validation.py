"""Cross-validation and comparison of models over a federation: fits without each fold, then one SUM of held-out losses.

A fold is a secret share of every client's rows (`maths.folds`), or a whole client. Fits send what their models send; GLMs and their faces,
with any penalties, are all fitted in the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import Client
from unpooled.data.federate import as_federation
from unpooled.data.schema.design import level_counts
from unpooled.errors import BadParameter
from unpooled.federation import Federation
from unpooled.layers.folds import Folded
from unpooled.layers.together import together
from unpooled.maths.folds import FOLDS, fold_of
from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.models.glm import GRIDS, METRICS, Fitted, Scores, held_out


@dataclass(frozen=True)
class Score:
    """One model's held-out losses, of rows that it was not fitted to.

    Attributes
    ----------
    mean : dict of str to float
        The mean over all rows of each metric; smaller is better.
    stderr : dict of str to float
        Its standard error, from how sites differ; NaN for one site.
    folds : dict of str to ndarray (folds,)
        The mean within each fold.
    n_rows : float
        The sum of the weights of the rows scored.
    models : list of fitted estimators, one per fold.
    """

    mean: dict[str, float]
    stderr: dict[str, float]
    folds: dict[str, np.ndarray]
    n_rows: float
    models: list

    def __str__(self) -> str:
        """Mean and standard error of every metric, in lines."""
        lines = [f"{m}: {self.mean[m]:.6g} (standard error by site {self.stderr[m]:.3g})" for m in self.mean]
        return "\n".join([*lines, f"{self.n_rows:g} rows, {len(self.models)} folds"])


@dataclass(frozen=True)
class Comparison:
    """Models by their held-out loss, the best first.

    Attributes
    ----------
    scores : dict of str to Score
    best : str
        The model of smallest mean loss.
    difference, difference_stderr : dict of str to float
        Each model's mean loss less that of the best, and its standard error from how sites differ.
    loss : str
        The metric compared.
    """

    scores: dict[str, Score]
    best: str
    difference: dict[str, float]
    difference_stderr: dict[str, float]
    loss: str

    def __str__(self) -> str:
        """A table with one line per model, the best first."""
        width = max(len(name) for name in self.scores)
        head = f"{'':<{width}}{self.loss:>14}{'std. error':>14}{'to the best':>14}{'std. error':>14}"
        return "\n".join([head, *(self._line(name, width) for name in self.scores)])

    def _line(self, name: str, width: int) -> str:
        """One model's loss, its difference to the best, and their standard errors."""
        score = self.scores[name]
        numbers = (score.mean[self.loss], score.stderr[self.loss], self.difference[name], self.difference_stderr[name])
        return f"{name:<{width}}" + "".join(f"{v:>14.5g}" for v in numbers)


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
        return _compared(fitted, sums, metrics, 1)  # sites have no losses of their own: no standard errors
    sums, metrics = _scores(fitted, fed, cv)
    return _compared(fitted, sums, metrics, len(fed.names))


def _named(models: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Models by name: the given one, or the class's, numbered where it occurs twice."""
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    given = list(models) if isinstance(models, Sequence) else [models]
    names = [type(m).__name__ for m in given]
    return {f"{n} {i + 1}" if names.count(n) > 1 else n: m for i, (n, m) in enumerate(zip(names, given))}


def _check(models: dict[str, Any], fed: Federation, cv: int | str) -> None:
    """Refuse no models, unknown folds, one client for cv="site", and models that cannot be scored over a network."""
    if not models:
        raise BadParameter("there is no model to validate: give at least one")
    if cv != "site" and (isinstance(cv, bool) or cv not in FOLDS):
        raise BadParameter(f"cv={cv!r} must be {', '.join(map(str, FOLDS))} or 'site'")
    if cv == "site" and len(fed.names) < 2:
        raise BadParameter("cv='site' predicts each client from the others, but there is only one: use cv=5")
    here = bool(fed.here())
    for name, model in models.items():
        if not (here or hasattr(model, "scoring") or hasattr(model, "partial_loglik")):
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
    folds = range(int(cv))
    works = [_work(model, int(cv), fold) for model in models.values() for fold in folds]
    found = together(fed, works, GRIDS)
    return {name: found[i * len(folds) : (i + 1) * len(folds)] for i, name in enumerate(models)}


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


def _scores(fitted: dict[str, list], fed: Federation, cv: int | str) -> tuple[Scores, dict[str, tuple[str, ...]]]:
    """(sums over all clients, metrics of each model)."""
    if all(hasattr(models[0], "scoring") for models in fitted.values()):
        return _asked(fitted, fed, cv)
    return _in_process(fitted, fed, cv)


def _asked(fitted: dict[str, list], fed: Federation, cv: int | str) -> tuple[Scores, dict[str, tuple[str, ...]]]:
    """One SUM, for all models and folds."""
    kinds, down = [], []
    for models in fitted.values():
        hows, coefs, scales, alphas = zip(*(m.scoring() for m in models))
        kinds.append(hows[0])
        down.append(Fitted(np.stack(coefs), np.array(scales), np.array(alphas)))
    folds, sites = (0, fed.names) if cv == "site" else (int(cv), [])
    levels = level_counts(fed.schema) if getattr(fed, "schema", None) is not None else []
    ask = held_out.using(models=kinds, folds=folds, sites=sites, levels=levels)
    total = tree.map(to_numpy, fed.sum(ask, tuple(down)))
    return total, {name: METRICS[how["kind"]] for name, how in zip(fitted, kinds)}


def _partial_likelihoods(
    fitted: dict[str, list], fed: Federation, cv: int | str
) -> tuple[Scores, dict[str, tuple[str, ...]]]:
    """Of Cox regressions: what the rows of each fold add to the partial likelihood of all, under the fit without them."""
    parts = _trainings(fed, cv)
    n, total = np.zeros(len(parts)), np.zeros((len(parts), len(fitted)))
    for j, models in enumerate(fitted.values()):
        for f, (model, training) in enumerate(zip(models, parts)):
            whole, events = model.partial_loglik(fed)
            seen, seen_events = model.partial_loglik(training)
            n[f], total[f, j] = events - seen_events, seen - whole
    nothing = np.zeros((total.shape[1] + 1) * (total.shape[1] + 2) // 2)
    return Scores(n, total, nothing), dict.fromkeys(fitted, ("partial_likelihood",))


def _in_process(fitted: dict[str, list], fed: Federation, cv: int | str) -> tuple[Scores, dict[str, tuple[str, ...]]]:
    """The same sums for any estimator, where the clients are in this process."""
    total, metrics = None, {}
    for index, client in enumerate(fed.here()):
        fold = np.full(len(client.w), index) if cv == "site" else _fold_of(client, int(cv))
        columns = []
        for name, models in fitted.items():
            losses = _losses(models, client, fold)
            metrics[name] = tuple(losses)
            columns += list(losses.values())
        part = _sums(to_numpy(client.w), np.stack(columns, 1), fold, len(next(iter(fitted.values()))))
        total = part if total is None else tree.add(total, part)
    assert total is not None
    return total, metrics


def _fold_of(client: Client, folds: int) -> np.ndarray:
    """The fold of each of the client's rows."""
    y = None if client.y is None else to_numpy(client.y)
    return fold_of(to_numpy(client.x), y, folds)


def _sums(w: np.ndarray, loss: np.ndarray, fold: np.ndarray, folds: int) -> Scores:
    """Rows and losses of each fold, and the client's products that give standard errors by site."""
    n = np.array([w[fold == f].sum() for f in range(folds)])
    total = np.array([(w[:, None] * loss)[fold == f].sum(0) for f in range(folds)])
    mine = np.concatenate([[n.sum()], total.sum(0)])
    return Scores(n, total, pack_triangle(np.outer(mine, mine)))


def _losses(models: list, client: Client, fold: np.ndarray) -> dict[str, np.ndarray]:
    """metric -> (n,), each row under the model that has not seen it."""
    found: dict[str, np.ndarray] = {}
    for f, model in enumerate(models):
        mine = fold == f
        if mine.any():
            x, y = to_numpy(client.x)[mine], None if client.y is None else to_numpy(client.y)[mine]
            for metric, values in _row_losses(model, x, y).items():
                found.setdefault(metric, np.zeros(len(fold)))[mine] = values
    return found


def _row_losses(model: Any, x: np.ndarray, y: np.ndarray | None) -> dict[str, np.ndarray]:
    """What an estimator says of rows, by the methods that it has."""
    if hasattr(model, "predict_proba") and hasattr(model, "classes_") and y is not None:
        code = np.searchsorted(model.classes_, y)
        p = np.take_along_axis(model.predict_proba(x), code[:, None], 1)[:, 0]
        error = model.predict(x) != y
        return {"log_loss": -np.log(np.maximum(p, 1e-300)), "error": error.astype(np.float64)}
    if y is None and hasattr(model, "score_samples"):
        return {"log_loss": -model.score_samples(x)}
    if hasattr(model, "predict") and y is not None:
        return {"squared_error": (np.asarray(model.predict(x)) - y) ** 2}
    raise BadParameter(f"{type(model).__name__} says nothing of new rows that could be scored: use a supervised model")


# ---- means and standard errors ----


def _compared(fitted: dict[str, list], sums: Scores, metrics: dict[str, tuple[str, ...]], sites: int) -> Comparison:
    """Scores of all models in the order of their loss, with differences to the best."""
    spread = _spread(sums, sites)
    places = _places(metrics)
    scores = {name: _score(models, sums, spread, places[name]) for name, models in fitted.items()}
    loss = _shared_metric(metrics)
    order = sorted(scores, key=lambda name: scores[name].mean[loss])
    best = order[0]
    apart = {name: scores[name].mean[loss] - scores[best].mean[loss] for name in order}
    errors = {name: _difference_stderr(spread, places[name][loss], places[best][loss]) for name in order}
    return Comparison({name: scores[name] for name in order}, best, apart, errors, loss)


def _places(metrics: dict[str, tuple[str, ...]]) -> dict[str, dict[str, int]]:
    """model -> metric -> its column in the sums."""
    columns = iter(range(sum(len(names) for names in metrics.values())))
    return {model: {metric: next(columns) for metric in names} for model, names in metrics.items()}


def _score(models: list, sums: Scores, spread: np.ndarray, places: dict[str, int]) -> Score:
    """One model's mean, standard error by site, and mean of each fold, for all of its metrics."""
    n = float(sums.n.sum())
    mean = {m: float(sums.total[:, j].sum() / n) for m, j in places.items()}
    error = {m: float(np.sqrt(max(spread[j, j], 0.0))) for m, j in places.items()}
    each = {m: sums.total[:, j] / np.maximum(sums.n, np.finfo(float).tiny) for m, j in places.items()}
    return Score(mean, error, each, n, models)


def _spread(sums: Scores, sites: int) -> np.ndarray:
    """(c, c) the covariance of the mean losses, from how each site's sums lie about the means over all."""
    c = sums.total.shape[1]
    if sites < 2:
        return np.full((c, c), np.nan)
    n, outer = float(sums.n.sum()), unpack_triangle(sums.outer)
    about = np.column_stack([-sums.total.sum(0) / n, np.eye(c)])  # a site's losses less what its rows lose on average
    return sites / (sites - 1) * (about @ outer @ about.T) / n**2


def _difference_stderr(spread: np.ndarray, a: int, b: int) -> float:
    """The standard error of a difference of two losses on the same rows."""
    return float(np.sqrt(max(spread[a, a] + spread[b, b] - 2 * spread[a, b], 0.0)))


def _shared_metric(metrics: dict[str, tuple[str, ...]]) -> str:
    """The first metric that all models have."""
    first = next(iter(metrics.values()))
    shared = [m for m in first if all(m in others for others in metrics.values())]
    if not shared:
        raise BadParameter(f"these models have no metric in common ({metrics}): compare models of one kind")
    return shared[0]
