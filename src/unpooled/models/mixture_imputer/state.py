"""What a fit carries from round to round: candidates, regressions of levels, how much each counts, and the stage. Nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.mixture_imputer.candidates import Candidate, is_anchor
from unpooled.models.mixture_imputer.checked import Checked
from unpooled.models.mixture_imputer.embedding import Embedding
from unpooled.models.mixture_imputer.logistic import Logistic, Regression
from unpooled.tree import message

# stages: mixtures and then regressions without the hidden cells, shares known, mixtures with all cells, intervals, and then regressions
FITTING, REGRESSING, JUDGED, CHOSEN, SETTLED, ENDING, ENDED = range(7)


@message("mixture_imputer.State")
class State(NamedTuple):
    """The whole fit between two rounds."""

    candidates: tuple[Candidate, ...]
    regressions: tuple[Regression, ...]  # of columns of levels, by column and then by variant
    mean: np.ndarray  # (e,)
    scale: np.ndarray  # (e,)
    stage: int
    shares: np.ndarray  # (d, candidates)
    crossed: np.ndarray  # (2, d, candidates), for either half of the rows by the hidden cells of the other
    level_shares: np.ndarray  # (d, variants), of the regressions; 0 for numbers
    # (d,) each: squares of predictions that were checked, and what share of them is error
    checked: tuple[np.ndarray, np.ndarray]
    central: np.ndarray  # (d, b), histograms of numbers by column
    by_value: np.ndarray  # (d,), log-odds of a gap per standard deviation of the column's own value
    errors: np.ndarray  # (candidates,) root mean squares, in standard deviations
    kinds: tuple[str, ...]
    levels: tuple[int, ...]
    skewed: tuple[int, ...]  # columns that some candidates take the logarithm of
    log_mean: np.ndarray  # (e,), of logarithms in these columns
    log_scale: np.ndarray  # (e,)
    table: float  # rows
    seen: np.ndarray  # (e,) values of each embedded column
    rounds: int  # of EM or of Newton's method in this stage


def layout(state: State) -> Embedding:
    """The embedding of the table that is fitted."""
    return Embedding(list(state.kinds), list(state.levels), state.skewed)


def options(state: State, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """What a question needs to know of the columns and of these candidates: which are mixtures of logarithms."""
    return {"columns": layout(state).option, "logs": [c.logs for c in candidates]}


def checks(state: State) -> Checked:
    """How far predictions are trusted, in the embedded columns; logarithms of some candidates are none of them."""
    of = layout(state).column_of
    return Checked(state.mean, state.scale, *(found[of] for found in state.checked))


def single_gaussian(state: State) -> Params:
    """The first candidate of one Gaussian; without any, the mean and covariance of the candidate that counts most."""
    found = next((c.params for c in state.candidates if is_anchor(c)), None)
    if found is not None:
        return found
    plain = [i for i, c in enumerate(state.candidates) if not c.logs]
    weights, means, covs = state.candidates[max(plain, key=lambda i: state.shares[:, i].mean())].params
    mean = weights @ means
    cov = np.einsum("k,kde->de", weights, gaussian.unpack_triangle(covs)) + (weights * (means - mean).T) @ (
        means - mean
    )
    return Params(np.ones(1), mean[None], gaussian.pack_triangle(cov)[None])


def settled(state: State) -> bool:
    """Whether no mixture moves any more."""
    return all(c.settled for c in state.candidates)


def single(state: State) -> int:
    """Which candidate fills in predictors of regressions: the first with the fewest components, one if there is such."""
    return int(np.argmin([len(c.params.weights) if not c.logs else np.inf for c in state.candidates]))


def models(state: State, coefs: tuple[np.ndarray, ...]) -> Logistic:
    """The regressions, with these coefficients, as they travel with a question."""
    return Logistic(state.candidates[single(state)].params, state.mean, state.scale, coefs)
