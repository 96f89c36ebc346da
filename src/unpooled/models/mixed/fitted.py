"""What a fitted mixed mixture can do with new rows, in this process: predict, score, sample, condition, fill in. Sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import BadParameter
from unpooled.estimator import rows_of
from unpooled.maths import gaussian, mixture
from unpooled.models.mixed import conditionals, em
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.counts import draw
from unpooled.models.mixed.messages import Params
from unpooled.models.mixture import MixtureFace
from unpooled.tree import message


@message("mixed.Conditional")
class Conditional(NamedTuple):
    """The distribution of some columns given others: moments of the numbers, probabilities of the levels."""

    mean: np.ndarray  # (n, u), of the numbers and counts among the columns
    covariance: np.ndarray  # (n, u, u)
    probabilities: dict[str, np.ndarray]  # (n, levels) of each discrete column, by its name or else its index


class FittedMixedMixture(MixtureFace):
    """Needs `covariance_type`, `weights_`, `means_`, `covariances_`, `level_probabilities_` and the like."""

    probabilities_: np.ndarray
    count_means_: np.ndarray
    count_dispersions_: np.ndarray
    kinds_: list[str]
    n_levels_: list[int]

    @property
    def table_columns(self) -> Columns:
        """The kinds of the columns, and where they lie in the blocks."""
        return Columns(self.kinds_, self.n_levels_)

    def params(self, client: str | None = None) -> Params:  # type: ignore[override]
        """The mixture as one value, under a client's own weights if one is named."""
        check_is_fitted(self, "means_")
        weights = self.weights_ if client is None else self._weights_of(client)
        covs = (
            gaussian.pack_covs(self.covariances_, self.covariance_type) if self.means_.shape[1] else self.covariances_
        )
        block = mixture.Params(weights, self.means_, covs)
        return Params(block, self.probabilities_, self.count_means_, self.count_dispersions_)

    def score_samples(self, X: Any, client: str | None = None) -> np.ndarray:
        """log p(x) of each row, over the values that are there: densities of numbers, probabilities of levels and counts."""
        return em.log_density(self.params(client), self._rows(X), self.table_columns, self.covariance_type)

    def impute(self, X: Any, client: str | None = None) -> np.ndarray:
        """X, encoded, with every missing number and count at its conditional mean and every missing level at the most likely one."""
        return conditionals.filled(self.params(client), self._rows(X), self.table_columns, self.covariance_type)

    def conditional(  # type: ignore[override]
        self, X: Any, columns: Sequence[int | str], client: str | None = None
    ) -> Conditional:
        """The distribution of `columns` given all the other columns of X (whatever X holds in them is ignored).

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
            Rows; missing values are integrated out.
        columns : sequence of int or str
            The columns asked about, by index or name.
        client : str or None, default=None
            With `personal_weights`, the client under whose weights.

        Returns
        -------
        Conditional
            `mean` (n, u) and `covariance` (n, u, u) of the numbers among them, in the order given; `probabilities` of the levels.
        """
        check_is_fitted(self, "means_")
        wanted = np.array([self._column(c) for c in columns], dtype=int)
        x = np.array(self._rows(X), dtype=np.float64)
        x[:, wanted] = np.nan
        kinds = self.table_columns
        numbers = np.array([j for j in wanted if j not in kinds.discrete], dtype=int)
        mean, covariance = conditionals.moments(self.params(client), x, kinds, self.covariance_type, numbers)
        probs = conditionals.probabilities(self.params(client), x, kinds, self.covariance_type)
        return Conditional(mean, covariance, {self._name(j): probs[j] for j in wanted if j in probs})

    def sample(
        self, n_samples: int = 1, client: str | None = None, random_state: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encoded rows drawn from the mixture, and the component each came from."""
        params = self.params(client)
        kinds = self.table_columns
        if n_samples < 1:
            raise BadParameter(f"n_samples={n_samples!r} must be at least 1")
        given = random_state if random_state is not None else getattr(self, "random_state", None)
        rng = np.random.default_rng(check_random_state(given).randint(2**31 - 1))
        weights = params.gaussian.weights
        y = np.repeat(np.arange(len(weights)), rng.multinomial(n_samples, weights / weights.sum()))
        x = np.full((n_samples, len(self.kinds_)), np.nan)
        x[:, kinds.gaussian] = self._draw_gaussian(params, y, rng)
        x[:, kinds.counts] = draw(params.mean[y], params.dispersion[y], rng)
        for j, part in zip(kinds.discrete, kinds.parts):
            ends = params.levels[y, part].cumsum(1)
            x[:, j] = (ends[:, :-1] < rng.random((n_samples, 1))).sum(1)
        return x, y

    def _draw_gaussian(self, params: Params, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw the numbers of rows whose components are `y`."""
        block = params.gaussian
        is_log = self.table_columns.is_log
        if not block.means.shape[1]:
            return np.zeros((len(y), 0))
        factors = np.linalg.cholesky(gaussian.full_covs(block, self.covariance_type))
        noise = rng.normal(size=(len(y), block.means.shape[1]))
        drawn = block.means[y] + np.einsum("nij,nj->ni", factors[y], noise)
        drawn[:, is_log] = np.exp(drawn[:, is_log])
        return drawn

    def _name(self, j: int) -> str:
        """A column's name, its number where it has none."""
        names = getattr(self, "columns_", None)
        return names[j] if names else str(j)

    def _log_joint(self, X: Any, client: str | None) -> np.ndarray:
        """Log of weight times density, (rows, k)."""
        return em.log_joint(self.params(client), self._rows(X), self.table_columns, self.covariance_type)

    def _n_parameters(self) -> int:
        """How many free parameters the mixture has."""
        return em.n_parameters(len(self.weights_), self.table_columns, self.covariance_type)

    def _rows(self, X: Any) -> np.ndarray:
        """X as an array with the columns of the fit; NaN is allowed."""
        check_is_fitted(self, "means_")
        return rows_of(self, X, ensure_all_finite="allow-nan", dtype=np.float64)
