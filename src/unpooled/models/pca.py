"""Principal components: two SUMs (means, second moments about them), or one SUM of a thin matrix per round where data are wide.

`solver="full"` sends the d (d + 1) / 2 second moments once and gives the components of the pooled rows. `solver="randomized"` sends,
per round, the product of the second moments with a basis of n_components + n_oversamples columns: subspace iteration.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, one_table, rows_of
from unpooled.federation import Federation
from unpooled.models.column_names import called, names_of
from unpooled.models.steady import Steady
from unpooled.parameters import at_least, flag, is_number, not_below_zero, one_of
from unpooled.tree import message

WIDE = 1000  # columns above which "auto" no longer sends all second moments


@message("pca.Sums")
class Sums(NamedTuple):
    """A first look: rows, missing values and sums of every column."""

    rows: Float[Array, "", ">=0 rows"]
    missing: Float[Array, "d", ">=0 rows"]
    x: Float[Array, "d"]


@message("pca.Centre")
class Centre(NamedTuple):
    """The mean about which second moments are taken."""

    mean: Float[Array, "d"]


@message("pca.Moments")
class Moments(NamedTuple):
    """Second moments about the mean: the upper triangle, row by row."""

    xx: Float[Array, "t"]


@message("pca.Basis")
class Basis(NamedTuple):
    """The mean and the current subspace, for a round on wide data."""

    mean: Float[Array, "d"]
    basis: Float[Array, "d l"]  # orthonormal columns


@message("pca.Product")
class Product(NamedTuple):
    """Second moments about the mean times the basis, and their trace."""

    xxq: Float[Array, "d l"]
    trace: Float[Array, "", ">=0"]


@message("pca.State")
class State(NamedTuple):
    """The subspace between two rounds."""

    absent: int | None  # clients that did not answer: the others have to stay
    rows: float
    mean: np.ndarray  # (d,)
    basis: np.ndarray  # (d, l); l is 0 with the full solver
    variances: np.ndarray  # (l,) along the basis, not yet sorted out by n_components; empty before the first round
    total: float  # the sum of all variances


@client("pca.sums", SUM, adds=True)
def sums(nothing: None, client: Client) -> Sums:
    """Rows, missing values and sums of every column."""
    x, w = _rows(client)
    is_missing = np.isnan(x)
    filled = np.where(is_missing, 0.0, x)
    return Sums(w.sum(-1), (w[..., None] * is_missing).sum(-2), (w[..., None] * filled).sum(-2))


@client("pca.moments", SUM, adds=True)
def moments(centre: Centre, client: Client) -> Moments:
    """Second moments of all pairs of columns about their means."""
    x, w = _rows(client)
    scaled = np.sqrt(w)[..., None] * (x - centre.mean)
    rows, columns = np.triu_indices(x.shape[-1])
    return Moments((scaled.swapaxes(-1, -2) @ scaled)[..., rows, columns])


@client("pca.product", SUM, adds=True)
def product(at: Basis, client: Client) -> Product:
    """Second moments about the means, times a thin basis."""
    x, w = _rows(client)
    scaled = np.sqrt(w)[..., None] * (x - at.mean)
    return Product(scaled.swapaxes(-1, -2) @ (scaled @ at.basis), (scaled**2).sum((-1, -2)))


def second_moments(fed: Federation, mean: np.ndarray) -> np.ndarray:
    """(d, d) the sum of (x - mean)(x - mean)' over all clients' rows: one SUM."""
    up = fed.sum(moments, Centre(mean))
    scatter = np.zeros((len(mean), len(mean)))
    upper = np.triu_indices(len(mean))
    scatter[upper] = to_numpy(up.xx)
    scatter.T[upper] = scatter[upper]
    return scatter


def _rows(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """The client's rows and weights as 64 bit floats."""
    return to_numpy(client.x).astype(np.float64, copy=False), to_numpy(client.w).astype(np.float64, copy=False)


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Principal components of all clients' rows, as scikit-learn finds them in the pooled rows.

    Parameters
    ----------
    n_components : int, float or None, default=None
        How many components are kept; a share in (0, 1) keeps as many as explain it (full solver); None keeps all.
    whiten : bool, default=False
        Whether `transform` scales the components to variance 1.
    solver : {"auto", "full", "randomized"}, default="auto"
        "full" sends all second moments once and is exact; "randomized" sends a thin matrix per round. "auto" is
        "randomized" above 1,000 columns where n_components is a whole number below 0.8 min(rows, columns).
    n_oversamples : int, default=10
        Columns of the basis beyond n_components (randomized).
    max_iter : int, default=20
        Rounds at most (randomized).
    tol : float, default=1e-4
        Stop when a round adds less than this share to the captured variance (randomized).
    random_state : int or None, default=None
        Seed of the first basis (randomized).

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, d)
        Directions, by falling variance; the largest loading of each is positive, as in scikit-learn.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray of shape (n_components_,)
        Variance along each direction (by rows - 1), its share of all variance, and the singular values.
    mean_ : ndarray of shape (d,)
        Means over all clients.
    noise_variance_ : float
        Mean variance along the directions left out.
    n_components_, n_samples_, n_features_in_ : int
        Components kept, rows and columns.

    References
    ----------
    Halko, Martinsson and Tropp (2011), Finding structure with randomness, SIAM Review 53.

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal(size=(40, 3)) * [9, 3, 1] for name in ("north", "south")}
    >>> pca = up.PCA(n_components=2).fit(sites)
    >>> pca.transform(sites["north"]).shape
    (40, 2)
    """

    def __init__(
        self,
        n_components: Any = None,
        *,
        whiten: bool = False,
        solver: str = "auto",
        n_oversamples: int = 10,
        max_iter: int = 20,
        tol: float = 1e-4,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.whiten = whiten
        self.solver = solver
        self.n_oversamples = n_oversamples
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        """Refuse parameters that do not exist or do not go together."""
        k = self.n_components
        if not (k is None or (is_number(k) and (0 < k < 1 or (k >= 1 and float(k).is_integer())))):
            raise BadParameter(f"n_components={k!r} must be a whole number of at least 1, a share in (0, 1) or None")
        one_of("solver", self.solver, ("auto", "full", "randomized"))
        if self.solver == "randomized" and (k is None or k < 1):
            raise BadParameter(
                f"solver='randomized' with n_components={k!r}: give a whole number, or use solver='full'"
            )
        flag("whiten", self.whiten)
        at_least("n_oversamples", self.n_oversamples, 0)
        at_least("max_iter", self.max_iter, 1)
        not_below_zero("tol", self.tol)

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """One SUM of means; a random subspace where data are wide."""
        steady = Steady(fed)
        first = steady.sum(sums, None)
        self._check_sums(first, names_of(fed, len(first.x)))
        d = len(first.x)
        size = min(int(self.n_components) + self.n_oversamples, d) if self._thin(float(first.rows), d) else 0
        start = np.linalg.qr(rng.normal(size=(d, size)))[0] if size else np.zeros((d, 0))
        mean = to_numpy(first.x) / float(first.rows)
        return State(steady.absent, float(first.rows), mean, start, np.zeros(0), 0.0)

    def _check_sums(self, first: Sums, names: list[str]) -> None:
        """Refuse too few rows, missing values, and more components than the data have."""
        rows = float(first.rows)
        gaps = to_numpy(first.missing)
        d = len(first.x)
        if rows < 2:
            raise BadData(f"all clients together have {rows:g} rows: principal components need at least 2")
        if gaps.any():
            most_gaps = called(names, [int(np.argmax(gaps))])
            raise BadData(
                f"{gaps.sum():g} values are missing, most in {most_gaps}: fill them in first, with MixtureImputer for example"
            )
        most = int(min(rows, d))
        if self.n_components is not None and self.n_components > most:
            raise BadParameter(
                f"n_components={self.n_components} is more than the {most} that {rows:g} rows of {d} columns have"
            )

    def _thin(self, rows: float, d: int) -> bool:
        """Whether a thin basis is sent instead of all second moments."""
        k = self.n_components
        if self.solver != "auto":
            return self.solver == "randomized"
        return d > WIDE and k is not None and 1 <= k < 0.8 * min(rows, d)

    def step(self, fed: Federation, state: State) -> tuple[State, dict]:
        """One SUM: all second moments, or their product with the subspace."""
        new = self._thin_round(fed, state) if state.basis.shape[1] else self._full_round(fed, state)
        top = int(self.n_components) if state.basis.shape[1] else len(new.variances)
        return new, {"captured": float(new.variances[:top].sum())}

    def _full_round(self, fed: Federation, state: State) -> State:
        """Eigenvectors of the exact covariance."""
        scatter = second_moments(Steady(fed, state.absent), state.mean)
        variances, vectors = eigh(scatter / (state.rows - 1), lower=True)
        kept = slice(None, -int(min(state.rows, len(state.mean))) - 1, -1)  # by falling variance; more have none
        return state._replace(
            basis=vectors[:, kept], variances=np.maximum(variances[kept], 0.0), total=_trace(scatter, state)
        )

    def _thin_round(self, fed: Federation, state: State) -> State:
        """Rayleigh and Ritz in the basis sent, and the basis that the next round sends."""
        up = Steady(fed, state.absent).sum(product, Basis(state.mean, state.basis))
        image = to_numpy(up.xxq) / (state.rows - 1)
        q, r = np.linalg.qr(image)
        left, values, _ = np.linalg.svd(r)
        return state._replace(basis=q @ left, variances=values, total=float(up.trace) / (state.rows - 1))

    def done(self, state: State, history: list) -> bool:
        """Whether the captured variance grows by less than `tol`."""
        if "captured" not in history[-1] or not self._thin(state.rows, len(state.mean)):
            return True
        if len(history) < 2:
            return False
        return history[-1]["captured"] - history[-2]["captured"] <= self.tol * history[-1]["captured"]

    def finish(self, fed: Federation, state: State) -> None:
        """Set the fitted attributes, with signs as scikit-learn chooses them."""
        k = self._kept(state)
        vectors = state.basis[:, :k].T
        largest = np.abs(vectors).argmax(1)
        signs = np.sign(vectors[np.arange(k), largest])
        self.components_ = vectors * np.where(signs == 0, 1.0, signs)[:, None]
        self.explained_variance_ = state.variances[:k]
        self.explained_variance_ratio_ = self.explained_variance_ / state.total if state.total > 0 else np.zeros(k)
        self.singular_values_ = np.sqrt(self.explained_variance_ * (state.rows - 1))
        self.mean_ = state.mean
        rest = int(min(state.rows, len(state.mean))) - k
        self.noise_variance_ = max(state.total - float(self.explained_variance_.sum()), 0.0) / rest if rest else 0.0
        self.n_components_ = k
        self.n_samples_ = round(state.rows)
        self.n_features_in_ = len(state.mean)

    def _kept(self, state: State) -> int:
        """How many components are kept, by number or by share of variance."""
        k = self.n_components
        if k is None:
            return len(state.variances)
        if k >= 1:
            return int(k)
        shares = np.cumsum(state.variances) / state.total
        return min(int(np.searchsorted(shares, k, side="right")) + 1, len(shares))

    @property
    def _n_features_out(self) -> int:
        """How many columns `transform` gives."""
        return self.n_components_

    # ---- the face ----

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit to one table, and transform it; a dict of clients is refused before the fit."""
        one_table(self, X)
        return super().fit_transform(X, y, **fit_params)

    def transform(self, X: Any) -> np.ndarray:
        """Rows along the components.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Rows with the columns of the fit.

        Returns
        -------
        ndarray of shape (n, n_components_)
            Scores, of variance 1 with `whiten=True`.
        """
        x = self._checked(X)
        scores = (x - self.mean_) @ self.components_.T
        return scores / self._scales() if self.whiten else scores

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Rows in the columns of the fit, from their scores.

        Parameters
        ----------
        X : array-like of shape (n, n_components_)
            Scores, as `transform` gives them.

        Returns
        -------
        ndarray of shape (n, d)
            The rows that these scores stand for.
        """
        check_is_fitted(self)
        scores = np.asarray(X, dtype=np.float64)
        return (scores * self._scales() if self.whiten else scores) @ self.components_ + self.mean_

    def get_covariance(self) -> np.ndarray:
        """The covariance of the model: components, and equal noise in all other directions; (d, d)."""
        check_is_fitted(self)
        beyond = np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)
        return (self.components_.T * beyond) @ self.components_ + self.noise_variance_ * np.eye(self.n_features_in_)

    def _scales(self) -> np.ndarray:
        """Standard deviations along the components, never 0."""
        return np.sqrt(np.maximum(self.explained_variance_, np.finfo(np.float64).eps))

    def _checked(self, X: Any) -> np.ndarray:
        """X as an array with the columns of the fit."""
        check_is_fitted(self)
        return rows_of(self, X, dtype=np.float64)


def _trace(scatter: np.ndarray, state: State) -> float:
    """The sum of all variances."""
    return float(np.trace(scatter)) / (state.rows - 1)
