"""Mean losses of models on held-out rows, with standard errors from how sites differ. Nothing is sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unpooled.errors import BadParameter
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.glm import Scores


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


def compared(fitted: dict[str, list], sums: Scores, metrics: dict[str, tuple[str, ...]], sites: int) -> Comparison:
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
    rows_of_folds = np.maximum(sums.n, np.finfo(float).tiny)
    mean, error, by_fold = {}, {}, {}
    for metric, j in places.items():
        mean[metric] = float(sums.total[:, j].sum() / n)
        error[metric] = float(np.sqrt(max(spread[j, j], 0.0)))
        by_fold[metric] = sums.total[:, j] / rows_of_folds
    return Score(mean, error, by_fold, n, models)


def _spread(sums: Scores, sites: int) -> np.ndarray:
    """(c, c) the covariance of the mean losses, from how each site's sums lie about the means over all."""
    c = sums.total.shape[1]
    if sites < 2:
        return np.full((c, c), np.nan)
    n = float(sums.n.sum())
    outer = unpack_triangle(sums.outer)
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
