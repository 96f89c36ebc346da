"""Fill in a table's gaps by a mixture of Gaussians fitted over clients: one SUM of statistics a round, a mean and an interval a gap.

How many components, and how strong a prior, is decided by cells that every client hides from itself for the first rounds:
candidates are fitted side by side in the same rounds, one SUM of their errors chooses, and the choice is fitted to all cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter
from unpooled.estimator import Estimator, Info, Moment, rows_of
from unpooled.federation import Federation
from unpooled.layers.private import find_private
from unpooled.maths import gaussian, imputation, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.models import initialization as start
from unpooled.parameters import at_least, one_of, within
from unpooled.tree import message

SIZES = (1, 2, 3, 5, 8)
STARTS = ("cells", "random")
ROWS_A_PARAMETER = 10  # a size with fewer is not tried
PRIORS = (1.0, 10.0)  # times the number of columns: rows that the prior is worth
BINS = 200  # of the histogram by which intervals are calibrated


@message("mixture_imputer.Candidate")
class Candidate(NamedTuple):
    params: Params
    prior: float  # rows
    loglik: float  # a row, at the params before the last update
    settled: bool


@message("mixture_imputer.Judged")
class Judged(NamedTuple):
    """How one candidate did on hidden cells."""

    cells: Float[Array, "", ">=0 rows"]
    error: Float[Array, "", ">=0"]  # sum of squares, in standard deviations of the column
    central: Float[Array, "b", ">=0 rows"]  # histogram of |2 F(value) - 1|: flat if intervals are right


@message("mixture_imputer.Asked")
class Asked(NamedTuple):
    params: Params
    scale: Float[Array, "d"]


@message("mixture_imputer.State")
class State(NamedTuple):
    candidates: tuple[Candidate, ...]
    mean: np.ndarray  # (d,)
    scale: np.ndarray  # (d,)
    chosen: bool
    central: np.ndarray  # (b,) of the chosen one
    errors: np.ndarray  # (candidates,) root mean squares, in standard deviations


@client("mixture_imputer.e_step", SUM, adds=True, batched=False)
def e_step(down: tuple[Params, ...], client: Client, *, hide: float) -> tuple[Stats, ...]:
    """Expected sufficient statistics under every candidate, missing values integrated out."""
    x, w = _table(client)
    x = np.where(imputation.hidden(x, hide), np.nan, x) if hide else x
    return tuple(mixture.e_step(params, x, w, "full") for params in down)


@client("mixture_imputer.cells", SUM, adds=True, batched=False)
def cells(down: tuple[Params, ...], client: Client, *, hide: float, shapes: list) -> tuple[Stats, ...]:
    """Counts, sums and second moments of the rows near each point, for the start."""
    x, w = _table(client)
    x = np.where(imputation.hidden(x, hide), np.nan, x) if hide else x
    return tuple(mixture.e_step(kernels, x, w, shape) for kernels, shape in zip(down, shapes))


@client("mixture_imputer.judge", SUM, adds=True, batched=False)
def judge(down: tuple[Asked, ...], client: Client, *, hide: float) -> tuple[Judged, ...]:
    """Errors on the cells that were hidden while the candidates were fitted."""
    x, w = _table(client)
    hidden = imputation.hidden(x, hide) & (w > 0)[:, None]
    return tuple(_judged(asked, x, w, hidden) for asked in down)


def _judged(asked: Asked, x: np.ndarray, w: np.ndarray, hidden: np.ndarray) -> Judged:
    law = imputation.laws(asked.params, np.where(hidden, np.nan, x))
    law = imputation.Laws(*(a[hidden[law.rows, law.columns]] for a in law))
    value, weight = x[law.rows, law.columns], w[law.rows]
    error = ((value - imputation.mean(law)) / asked.scale[law.columns]) ** 2
    central = np.abs(2 * imputation.cdf(law, value) - 1)
    counts = np.histogram(central, bins=BINS, range=(0, 1), weights=weight)[0]
    return Judged(np.asarray(weight.sum()), np.asarray(weight @ error), counts.astype(np.float64))


def _table(client: Client) -> tuple[np.ndarray, np.ndarray]:
    return to_numpy(client.x).astype(np.float64), to_numpy(client.w).astype(np.float64)


class MixtureImputer(OneToOneFeatureMixin, TransformerMixin, Estimator):
    """Fills NaN in tables of numbers, federated: `fit` over clients, `transform` anywhere.

    n_components : an int, several to choose from, or "auto".
    prior : how many rows of uncorrelated columns the prior is worth; None chooses between one and ten times the columns.
    hide : the share of cells that is held back to choose by, and to calibrate intervals with; 0 needs one candidate.
    choose_iter : rounds for the choice, at most.
    init_params : where mixtures of several components start: "cells" (sums over small regions) or "random".
    """

    def __init__(
        self,
        n_components: int | Sequence[int] | str = "auto",
        *,
        prior: float | None = None,
        hide: float = 0.1,
        choose_iter: int = 30,
        max_iter: int = 100,
        tol: float = 1e-4,
        init_params: str = "cells",
        random_state: Any = 0,
    ):
        self.n_components = n_components
        self.prior = prior
        self.hide = hide
        self.choose_iter = choose_iter
        self.max_iter = max_iter
        self.tol = tol
        self.init_params = init_params
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        if isinstance(self.n_components, str) and self.n_components != "auto":
            raise BadParameter(f"n_components={self.n_components!r} is not known: use a number, several, or 'auto'")
        for k in [] if isinstance(self.n_components, str) else np.atleast_1d(self.n_components).tolist():
            at_least("n_components", k, 1)
        if not 0 <= self.hide <= 0.5:
            raise BadParameter(
                f"hide={self.hide!r} must be from 0 to 0.5: it is the share of cells held back to choose by"
            )
        one_of("init_params", self.init_params, STARTS)
        if self.prior is not None:
            within("prior", self.prior, 0, np.inf, "how many rows the prior is worth")

    # ---- fitting: choose by hidden cells, then fit to all ----

    def rounds(self, fed: Federation, saved: Moment | None = None) -> Iterator[Moment]:
        """Fit, handing out what is needed to go on; with a `Private` layer in `fed`, by the private counterpart."""
        if find_private(fed) is None:
            return super().rounds(fed, saved)
        from unpooled.models.private import rounds_private

        return rounds_private(self, fed, saved)

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        frame = start.frame(fed)
        mean, scale = to_numpy(frame.mean), to_numpy(frame.scale)
        pairs = self._pairs(float(frame.rows), len(mean))
        if self.hide == 0 and len(pairs) > 1:
            raise BadParameter("hide=0 leaves no cells to choose by: give n_components and prior as one number each")
        starts = self._starts(fed, frame, sorted({k for k, _ in pairs}), rng)
        candidates = tuple(Candidate(starts[k], prior, -np.inf, False) for k, prior in pairs)
        flat = np.full(BINS, 1 / BINS)
        return State(candidates, mean, scale, self.hide == 0, flat, np.full(len(pairs), np.nan))

    def _starts(self, fed: Federation, frame: start.Frame, sizes: list[int], rng: Any) -> dict[int, Params]:
        """A mixture of each size; what is hidden is hidden from the start too."""
        if self.init_params == "random":
            draws = {k: start.random_means(frame, k, rng) if k > 1 else to_numpy(frame.mean)[None] for k in sizes}
            return {k: start.wide(frame, means, "full") for k, means in draws.items()}

        def totals(kernels: tuple[Params, ...], shapes: list[str]) -> tuple[Stats, ...]:
            return fed.sum(cells.using(hide=self.hide, shapes=shapes), kernels)

        return dict(zip(sizes, start.starts(totals, frame, sizes, 1, "full", rng)))

    def _pairs(self, rows: float, d: int) -> list[tuple[int, float]]:
        """(components, prior) of every candidate; a mixture of several is tried where rows are many."""
        if isinstance(self.n_components, str):
            a_component = d * (d + 3) / 2 + 1
            sizes = [k for k in SIZES if k == 1 or ROWS_A_PARAMETER * k * a_component <= rows]
        else:
            sizes = np.atleast_1d(self.n_components).tolist()
        priors = [self.prior] if self.prior is not None else [p * d for p in PRIORS]
        return [(k, float(p)) for k in sizes for p in priors]

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        if not state.chosen and (
            self._settled(state) or fed.journal.round > self.choose_iter + self._start_sums(state)
        ):
            return self._choose(fed, state)
        active = [i for i, c in enumerate(state.candidates) if not c.settled]
        ask = e_step.using(hide=0.0 if state.chosen else self.hide)
        found = fed.sum(ask, tuple(state.candidates[i].params for i in active))
        moved = {i: self._move(state, state.candidates[i], stats) for i, stats in zip(active, found)}
        candidates = tuple(moved.get(i, c) for i, c in enumerate(state.candidates))
        return state._replace(candidates=candidates), {"loglik": candidates[0].loglik, "candidates": len(active)}

    def _move(self, state: State, c: Candidate, stats: Stats) -> Candidate:
        loglik = float(stats.loglik / stats.rows)
        params = imputation.map_step(c.params, stats, state.mean, state.scale, c.prior)
        return Candidate(params, c.prior, loglik, abs(loglik - c.loglik) < self.tol)

    def _choose(self, fed: Federation, state: State) -> tuple[State, Info]:
        found = fed.sum(judge.using(hide=self.hide), tuple(Asked(c.params, state.scale) for c in state.candidates))
        errors = np.array([float(np.sqrt(j.error / max(float(j.cells), 1e-300))) for j in found])
        best = int(np.argmin(errors)) if float(found[0].cells) else 0
        chosen = state.candidates[best]._replace(settled=False, loglik=-np.inf)
        central = np.asarray(found[best].central) if float(found[0].cells) else state.central
        info = {"loglik": state.candidates[best].loglik, "candidates": len(errors), "hidden_rmse": errors[best]}
        return State((chosen,), state.mean, state.scale, True, central, errors), info

    def _start_sums(self, state: State) -> int:
        """How many SUMs the start took: two for the frame, the rest for cells and their choice."""
        several = any(len(c.params.weights) > 1 for c in state.candidates)
        return 2 + start.CELL_SUMS if several and self.init_params == "cells" else 2

    def _settled(self, state: State) -> bool:
        return all(c.settled for c in state.candidates)

    def done(self, state: State, history: list[Info]) -> bool:
        return state.chosen and self._settled(state)

    def finish(self, fed: Federation, state: State) -> None:
        best = state.candidates[0]
        self.weights_, self.means_ = best.params.weights, best.params.means
        self.covariances_ = gaussian.unpack_triangle(best.params.covs)
        self.prior_, self.central_, self.hidden_rmse_ = best.prior, state.central, state.errors
        self.n_components_, self.n_features_in_ = self.means_.shape

    # ---- filling in ----

    def transform(self, X: Any) -> np.ndarray:
        """X with every gap at its mean given what is there of the row."""
        x = self._rows(X)
        law = imputation.laws(self._params(), x)
        x[law.rows, law.columns] = imputation.mean(law)
        return x

    def draw(self, X: Any, n_draws: int = 5, random_state: Any = None) -> list[np.ndarray]:
        """Multiple imputation: X with its gaps drawn, several times."""
        at_least("n_draws", n_draws, 1)
        x = self._rows(X)
        given = self.random_state if random_state is None else random_state
        rng = np.random.default_rng(check_random_state(given).randint(2**31 - 1))
        return [imputation.draw(self._params(), x, rng) for _ in range(n_draws)]

    def interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of every cell: an interval for a gap, widened or narrowed by how the hidden cells fared; else the value."""
        if not 0 < coverage < 1:
            raise BadParameter(
                f"coverage={coverage!r} must be between 0 and 1: it is the share of gaps inside their interval"
            )
        low, high = self._rows(X), self._rows(X)
        law = imputation.laws(self._params(), low)
        central = self._calibrated(coverage)
        low[law.rows, law.columns] = imputation.quantile(law, (1 - central) / 2)
        high[law.rows, law.columns] = imputation.quantile(law, (1 + central) / 2)
        return low, high

    def _calibrated(self, coverage: float) -> float:
        """The nominal coverage at which this share of the hidden cells was inside."""
        share = np.append(0.0, np.cumsum(self.central_) / self.central_.sum())
        return float(np.interp(coverage, share, np.linspace(0, 1, len(share))).clip(1e-6, 1 - 1e-6))

    def _params(self) -> Params:
        return Params(self.weights_, self.means_, gaussian.pack_triangle(self.covariances_))

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "means_")
        return rows_of(self, X, ensure_all_finite="allow-nan", dtype=np.float64, copy=True)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
