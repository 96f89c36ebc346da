"""LinearRegression and LogisticRegression as scikit-learn's users know them: the pooled fit, by sums over clients.

LinearRegression takes three SUMs in all. LogisticRegression takes one SUM of counts, then one SUM per Newton step, or per step of L-BFGS
where coefficients are many; labels that are not known beforehand take one more SUM over a network.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, t
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.data.designed import refuse_rare_levels
from unpooled.data.tabled import DESIGN
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info, rows_of
from unpooled.federation import Federation, refuse_few
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.column_names import where_missing
from unpooled.models.glm import classes as questions
from unpooled.models.glm import many_coefficients, newton
from unpooled.models.glm.classes import Counts, Point
from unpooled.models.glm.glm import GLM, MOST_HALVINGS
from unpooled.models.glm.newton import Evaluated, Path, Penalty
from unpooled.parameters import above, at_least, flag, is_number, not_below_zero, one_of
from unpooled.tree import message

PENALISE = "use penalty='l2'"


class LinearRegression(GLM):
    """Least squares over clients: the fit of the pooled rows, with standard errors, in three SUMs.

    Intervals and p-values are those of the t distribution with `df_resid_` degrees of freedom, and normal ones for robust standard
    errors, as statsmodels' OLS has them.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether there is a constant term.
    cov_type : {"nonrobust", "HC0", "site"}, default="nonrobust"
        Which standard errors; see `GLM`.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with rows that have missing values.
    random_state : int or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    coef_, intercept_, stderr_, df_resid_, ... : see `GLM`.

    Examples
    --------
    >>> import unpooled as up
    >>> model = up.LinearRegression().fit([([[0.0], [1.0]], [1.0, 3.0]), ([[2.0], [3.0]], [5.0, 7.5])])
    >>> model.coef_.round(2), round(model.intercept_, 2)
    (array([2.15]), 0.9)
    """

    _penalise = "use GLM with alpha= for a ridge penalty"

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        cov_type: str = "nonrobust",
        missing: str = "refuse",
        random_state: Any = None,
    ):
        super().__init__(
            "normal", fit_intercept=fit_intercept, cov_type=cov_type, missing=missing, random_state=random_state
        )

    def _law(self) -> Any:
        """Student's t where the variance of y is estimated alone, normal for robust standard errors."""
        return t(self.df_resid_) if self.cov_type == "nonrobust" else norm


NEAR = 1e-3  # root mean square change of the linear predictor, below which steps become smaller quadratically
CLOSE = 1e-4  # the same, below which the next step has the curvature of the last one
REMAINS = 1e-3  # of the tolerance: what may remain after a step that is not followed by another


def _progress(total: Any, moved: float) -> Info:
    """The row of history_ of a round."""
    info = {"loss": float(0.5 * total.loss) / float(total.n)}
    return info | {"change": moved} if np.isfinite(moved) else info


@message("glm.ClassState")
class State(NamedTuple):
    """Classes, their counts and weights, and where Newton's method is."""

    classes: list
    seen: Counts
    weight: np.ndarray  # (k,) of each class
    path: Path | many_coefficients.Path  # over (m q,) coefficients


class LogisticRegression(ClassifierMixin, Estimator):
    """Logistic regression over clients, of two classes or more: the coefficients of scikit-learn's fit to the pooled rows.

    Parameters
    ----------
    penalty : {"l2", "l1", "elasticnet", None}, default="l2"
        What holds the coefficients small; None is maximum likelihood.
    C : float, default=1.0
        The inverse of the penalty's strength, against the sum of the rows' losses.
    l1_ratio : float or None, default=None
        The share of the absolute penalty, for penalty="elasticnet".
    fit_intercept : bool, default=True
        Whether there are constant terms. They are not penalised.
    class_weight : dict, "balanced" or None, default=None
        A weight for each class; "balanced" gives all classes the same weight in total.
    classes : list or None, default=None
        All labels. Over a network they must be given unless they are whole numbers from 0 to 63, which a SUM of counts finds.
    missing : {"refuse", "drop"}, default="refuse"
        What to do with rows that have missing values.
    tol : float, default=1e-6
        Stop when a Newton step changes the linear predictor by less (root mean square), or when what will remain after it is a
        thousandth of this. A step of L-BFGS must change it by less than a thousandth of this.
    max_iter : int, default=100
        The most steps, those that were shortened included.
    random_state : int or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    classes_ : ndarray (k,)
    coef_ : ndarray (1, p) for two classes, of the second; (k, p) for more
    intercept_ : ndarray (1,) or (k,)
    loss_ : float, the mean of -log P(y | x) over rows, with class weights and without penalty
    converged_ : bool

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> x = np.arange(8.0)[:, None]
    >>> y = np.array(["no", "no", "no", "yes", "no", "yes", "yes", "yes"])
    >>> model = up.LogisticRegression().fit({"north": (x[::2], y[::2]), "south": (x[1::2], y[1::2])})
    >>> model.coef_.round(3), model.predict([[0.0], [7.0]])
    (array([[0.868]]), array(['no', 'yes'], dtype='<U3'))
    """

    encoding = DESIGN

    def __init__(
        self,
        penalty: str | None = "l2",
        *,
        C: float = 1.0,
        l1_ratio: float | None = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        classes: Sequence | None = None,
        missing: str = "refuse",
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: Any = None,
    ):
        self.penalty = penalty
        self.C = C
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.classes = classes
        self.missing = missing
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        one_of("penalty", self.penalty, ("l2", "l1", "elasticnet", None))
        above("C", self.C, 0)
        flag("fit_intercept", self.fit_intercept)
        one_of("missing", self.missing, ("refuse", "drop"))
        not_below_zero("tol", self.tol)
        at_least("max_iter", self.max_iter, 1)
        mixed = self.penalty == "elasticnet"
        if mixed and not (is_number(self.l1_ratio) and 0 <= (self.l1_ratio or 0) <= 1):
            raise BadParameter(f"l1_ratio={self.l1_ratio!r} must be between 0 and 1 for penalty='elasticnet'")
        if not (self.class_weight in (None, "balanced") or isinstance(self.class_weight, Mapping)):
            raise BadParameter(f"class_weight={self.class_weight!r} must be a dict of weights, 'balanced' or None")

    # ---- rounds ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Find the classes and count them, then start at their shares."""
        labels = questions.found(fed, self.classes)
        seen = tree.map(to_numpy, fed.sum(questions.counts.using(classes=labels), None))
        self._check_seen(seen, labels, fed)
        refuse_rare_levels(fed, fed.columns or (), seen.n.sum(), seen.x)
        refuse_few(fed, {f"class {label!r}": n for label, n in zip(labels, seen.n.tolist())})
        weight = self._weights(labels, seen.n)
        share = weight * seen.n / (weight * seen.n).sum()
        coef = np.zeros((1 if len(labels) == 2 else len(labels), len(seen.x) + int(self.fit_intercept)))
        if self.fit_intercept:
            logs = np.log(share)
            coef[:, 0] = logs[1] - logs[0] if len(labels) == 2 else logs - logs.mean()
        many = self.penalty == "l2" and self.fit_intercept and many_coefficients.takes_quasi_newton_steps(coef)
        return State(labels, seen, weight, many_coefficients.begin(coef) if many else newton.begin(coef.ravel()))

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One SUM of score and curvature, then a step that is shortened when it does not help."""
        pen = self._penalty(state, self._shaped(state))
        path = state.path
        if isinstance(path, many_coefficients.Path):
            if not many_coefficients.is_slow(path):
                return self._quasi_newton_step(fed, state, path, pen)
            path = newton.begin(path.base)
            state = state._replace(path=path)
        return self._newton_step(fed, state, path, pen)

    def _newton_step(self, fed: Federation, state: State, path: Path, pen: Penalty) -> tuple[State, Info]:
        """A step with all second derivatives."""
        coef = self._shaped(state)
        known = path.moved < CLOSE  # the curvature is that of the last point
        total = self._ask(fed, state, "none" if known else "whole")
        hessian = path.last if known else unpack_triangle(total.hessian)
        if not path.first.any() and not pen.any:
            block = hessian[: coef.shape[1], : coef.shape[1]]
            small = newton.rounding(block, self._mean(state), self.fit_intercept)
            newton.check_independent(block, self._names(fed, state), small, PENALISE)
        objective = float(0.5 * total.loss) + pen.value(path.at)
        hessian = hessian if known else self._settled(hessian, coef, pen)
        n = float(total.n)
        path = newton.advance(path, Evaluated(hessian, total.score.ravel(), objective, n, n), pen, longer=True)
        if path.halvings == 0 and not pen.any:
            newton.check_informed(hessian, path.first, n, self._names(fed, state) * len(coef), PENALISE)
        return state._replace(path=path), _progress(total, path.moved)

    def _quasi_newton_step(
        self, fed: Federation, state: State, path: many_coefficients.Path, pen: Penalty
    ) -> tuple[State, Info]:
        """A step with second derivatives within classes, of a few of the rounds."""
        within = many_coefficients.asks_for_second_derivatives(path)
        total = self._ask(fed, state, "within" if within else "none")
        objective = float(0.5 * total.loss) + pen.value(path.at)
        here = many_coefficients.Evaluated(total.score, objective, float(total.n), total.hessian)
        path = many_coefficients.advance(path, here, pen.ridge)
        return state._replace(path=path), _progress(total, path.moved)

    def _ask(self, fed: Federation, state: State, second: str) -> Any:
        """The clients' sums at the next point."""
        ask = questions.curvature.using(classes=state.classes, intercept=bool(self.fit_intercept), second=second)
        point = Point(self._mean(state), self._shaped(state), state.weight)
        return tree.map(to_numpy, fed.sum(ask, point))

    def done(self, state: State, history: list[Info]) -> bool:
        """Whether the coefficients hardly move, or no step lowers the loss."""
        return self._settled_down(state, history) or state.path.halvings > MOST_HALVINGS

    def _settled_down(self, state: State, history: list[Info]) -> bool:
        """Whether the last step was small, or what remains after it will be: near the optimum each of Newton's steps is as much smaller as
        the square of the one before. Of steps of L-BFGS as much may remain as they move.
        """
        changes = [row["change"] for row in history if "change" in row]
        if isinstance(state.path, many_coefficients.Path):
            return bool(changes) and changes[-1] < REMAINS * self.tol
        if not changes or changes[-1] < self.tol:
            return bool(changes)
        last = changes[-1]
        before = min([1.0, *changes[-2:-1]])
        return last < NEAR and last * (last / before) ** 2 < REMAINS * self.tol

    def finish(self, fed: Federation, state: State) -> None:
        """Set coefficients for columns that are not centred, and warn of a fit that did not converge."""
        self.converged_ = self._settled_down(state, self.history_)
        if not self.converged_:
            text = f"LogisticRegression did not converge in max_iter={self.max_iter} rounds: raise max_iter or lower C"
            warnings.warn(text, ConvergenceWarning, stacklevel=5)
        coef = self._shaped(state)
        first = int(self.fit_intercept)
        self.classes_ = np.asarray(state.classes)
        self.coef_ = coef[:, first:]
        centre = self.coef_ @ self._mean(state)
        self.intercept_ = coef[:, 0] - centre if first else np.zeros(len(coef))
        self.n_features_in_ = self.coef_.shape[1]
        self.loss_ = float(self.history_[-1]["loss"]) if self.history_ else float("nan")

    # ---- a fitted model ----

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) for two classes, (n, k) for more: the linear predictors."""
        eta = self._eta(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """(n, k) logarithms of the classes' probabilities."""
        return questions.log_probabilities(self._eta(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, k) probabilities of the classes."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """(n,) the most probable class of each row."""
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

    def _eta(self, X: Any) -> np.ndarray:
        """Linear predictors of rows, (n, m)."""
        check_is_fitted(self, "coef_")
        return rows_of(self, X, dtype=np.float64) @ self.coef_.T + self.intercept_

    def scoring(self) -> tuple[dict[str, Any], np.ndarray, float, float]:
        """What clients need to score the fitted model: (its kind, coefficients (m, q), 1, 1); see `up.cross_validate`."""
        check_is_fitted(self, "coef_")
        kind = {"kind": "classes", "classes": self.classes_.tolist(), "offset": -1}
        return kind, np.column_stack([self.intercept_, self.coef_]), 1.0, 1.0

    # ---- parts of a round ----

    def _shaped(self, state: State) -> np.ndarray:
        """The coefficients as one row per class, or one row for two classes."""
        return state.path.at.reshape(1 if len(state.classes) == 2 else len(state.classes), -1)

    def _mean(self, state: State) -> np.ndarray:
        """What columns are centred by: their mean, or 0 without an intercept."""
        return state.seen.x / state.seen.n.sum() if self.fit_intercept else np.zeros_like(state.seen.x)

    def _weights(self, labels: list, n: np.ndarray) -> np.ndarray:
        """The weight of each class."""
        if self.class_weight == "balanced":
            return n.sum() / (len(labels) * n)
        given = self.class_weight or {}
        unknown = [label for label in given if label not in labels]
        if unknown:
            raise BadParameter(f"class_weight has the class {unknown[0]!r} that is not there: they are {labels}")
        return np.array([float(given.get(label, 1.0)) for label in labels])

    def _penalty(self, state: State, coef: np.ndarray) -> Penalty:
        """Ridge and absolute penalties of every coefficient; the intercept has none."""
        share = {"l1": 1.0, "elasticnet": float(self.l1_ratio or 0.0)}.get(str(self.penalty), 0.0)
        each = np.full(coef.shape, 0.0 if self.penalty is None else 1 / self.C)
        if self.fit_intercept:
            each[:, 0] = 0.0
        return Penalty((1 - share) * each.ravel(), share * each.ravel())

    def _settled(self, hessian: np.ndarray, coef: np.ndarray, pen: Penalty) -> np.ndarray:
        """Where all classes' coefficients may move together without effect, hold them: what a start of sum 0 keeps at sum 0."""
        m, q = coef.shape
        if m == 1:
            return hessian
        alike = np.kron(np.ones((m, m)), np.diag(np.diag(hessian).reshape(m, q).mean(0)))
        unheld = np.tile((pen.ridge.reshape(m, q)[0] == 0) & (pen.absolute.reshape(m, q)[0] == 0), m)
        return hessian + np.where(np.outer(unheld, unheld), alike, 0.0)

    def _names(self, fed: Federation, state: State) -> list[str]:
        """Names of the coefficients, for messages."""
        given = fed.columns or [f"x{j}" for j in range(len(state.seen.x))]
        return [*(["intercept"] if self.fit_intercept else []), *map(str, given)]

    def _check_seen(self, seen: Counts, labels: list, fed: Federation) -> None:
        """Refuse missing values where they are not dropped, and classes without rows."""
        if seen.missing > 0 and self.missing == "refuse":
            text = (
                f"{seen.missing:g} rows have missing values{where_missing(fed)}: use missing='drop' to leave them out"
            )
            raise BadData(f"{text}, or fill them in first with MixtureImputer")
        if (seen.n <= 0).any():
            empty = labels[int(np.argmin(seen.n))]
            raise BadData(f"no client has a complete row of class {empty!r}: leave it out of classes=, or give it rows")
