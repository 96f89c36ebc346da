"""From totals to what follows from them: tests of shift, held-out losses with standard errors by site, the recommendation.

Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.models.pooling import homogeneity
from unpooled.models.pooling.homogeneity import Moments, Result
from unpooled.models.pooling.questions import Apart, Shift
from unpooled.models.pooling.sites import STRATEGIES, Losses, candidates

CLEARLY = 2.0  # standard errors by which own weights must be better where the tests see no difference of slopes
CLOSE = 1.0  # standard errors of the best strategy within which one of a simpler kind is taken where they do
KINDS = (("one model",), ("own intercepts",), ("groups", "own weights"), ("personalised", "own fit"))
MODELS = {  # strategy -> family -> which of our models to fit
    "one model": {
        "normal": "LinearRegression, or BayesianRegression for intervals",
        "binomial": "LogisticRegression",
        "poisson": "GLM(family='poisson')",
    },
    "own intercepts": "GLM with an indicator column for every site but one",
    "groups": {
        "binomial": "FedConceptEM(n_concepts={groups}), or one model for each group",
        "": "one GLM for each group, over its sites",
    },
    "own weights": {"binomial": "FedGMM", "": "FedEM of regressions (family 'regression')"},
    "personalised": "Pooling itself: predict(X, client=...) has each site's own coefficients, drawn to the common mean",
    "own fit": "a GLM at each site alone",
}
WHY = {
    "one model": "one set of coefficients suits all sites",
    "own intercepts": "sites differ in level, not in slopes",
    "groups": "sites fall into {groups} groups with a model each",
    "own weights": "sites mix the same models in proportions of their own",
    "personalised": "sites differ about a common mean, and each has too few rows to stand alone",
    "own fit": "sites have little in common and rows enough of their own",
}


def shift_tests(shift: Shift, n: float, sites: float) -> dict[str, dict[str, Result]]:
    """Tests that all sites have the same P(x), and the same P(y)."""
    found = {}
    for name, sums in (("P(x)", shift.x), ("P(y)", shift.y)):
        moments = Moments(n, sites, sums.x, unpack_triangle(sums.xx), unpack_triangle(sums.between))
        found[name] = homogeneity.equal_means(moments)
    return found


def concept_tests(
    family: str, common: float, slopes: float, apart: Apart, n: float, sites: float, q: int
) -> dict[str, dict[str, Result]]:
    """Tests of P(y | x): own fit, own intercepts and own slopes; `common` and `slopes` are losses of the smaller models."""
    rank, own = float(apart.rank), float(apart.own_loss)
    levels, all_ = sites - 1, rank - q
    if family == "normal":
        whole = homogeneity.f_test(2 * (common - own), all_, 2 * own, n - rank)
        score = homogeneity.f_test(float(apart.score), all_, 2 * own, n - rank)
        intercepts = homogeneity.f_test(2 * (common - slopes), levels, 2 * slopes, n - sites - q + 1)
        own_slopes = homogeneity.f_test(2 * (slopes - own), all_ - levels, 2 * own, n - rank)
    else:
        factor = (float(apart.expected) - q) / max(all_, 1.0)
        whole = homogeneity.likelihood_ratio(2 * (common - own), all_, factor)
        score = homogeneity.likelihood_ratio(float(apart.score), all_)
        intercepts = homogeneity.likelihood_ratio(2 * (common - slopes), levels)
        own_slopes = homogeneity.likelihood_ratio(2 * (slopes - own), all_ - levels, factor)
    return {"P(y | x)": {"lr": whole, "score": score}, "intercepts": {"lr": intercepts}, "slopes": {"lr": own_slopes}}


def means(sums: Losses, sites: float) -> tuple[np.ndarray, np.ndarray]:
    """(r,) mean held-out losses, and (r, r) their covariance from how sites differ."""
    n = float(sums.n)
    mean = sums.total / n
    about = np.column_stack([-mean, np.eye(len(mean))])  # a site's losses less what its rows lose on average
    return mean, about @ unpack_triangle(sums.outer) @ about.T / n**2 * sites / max(sites - 1, 1.0)


def chosen(sums: Losses, sizes: Sequence[int], sites: float) -> list[int]:
    """The candidate of each strategy: of groups and of mixed components the fewest that are within a standard error of the best number."""
    mean, spread = means(sums, sites)
    strategies = [strategy for strategy, _ in candidates(sizes)]
    found = []
    for strategy in STRATEGIES:
        places = [i for i, name in enumerate(strategies) if name == strategy]  # by rising number of components
        best = min(places, key=lambda i: float(mean[i]))
        found.append(next(i for i in places if _behind(mean, spread, i, best) <= CLOSE))
    return found


def groups_of(kept: Sequence[int], sizes: Sequence[int]) -> int:
    """How many groups the chosen candidate of the strategy "groups" has."""
    return candidates(sizes)[kept[STRATEGIES.index("groups")]][1]


def only(sums: Losses, kept: Sequence[int]) -> Losses:
    """The losses of some candidates."""
    outer = unpack_triangle(sums.outer)
    index = np.array([0, *(i + 1 for i in kept)])
    return Losses(sums.n, sums.total[list(kept)], pack_triangle(outer[np.ix_(index, index)]))


def by_strategy(sums: Losses, sites: float) -> dict[str, dict[str, float]]:
    """Held-out loss of every strategy, and its difference to the best, with standard errors from how sites differ."""
    mean, spread = means(sums, sites)
    best = int(np.argmin(mean))
    pair = np.diag(spread) + spread[best, best] - 2 * spread[:, best]
    error, apart = np.sqrt(np.maximum(np.diag(spread), 0.0)), np.sqrt(np.maximum(pair, 0.0))
    return {
        strategy: {
            "loss": float(mean[i]),
            "stderr": float(error[i]),
            "difference": float(mean[i] - mean[best]),
            "difference_stderr": float(apart[i]),
        }
        for i, strategy in enumerate(STRATEGIES)
    }


def by_tests(tests: Mapping[str, Any], level: float) -> str:
    """What the tests alone say."""
    if not tests["P(y | x)"]["lr"]["p_value"] < level:
        return "one model"
    return "personalised" if tests["slopes"]["lr"]["p_value"] < level else "own intercepts"


def recommended(losses: Losses, sites: float, tests: Mapping[str, Any], level: float) -> str:
    """The strategy of the least held-out loss, or of the simplest kind that held-out losses cannot tell from it.

    Where the tests see no difference of slopes it is one model; or own intercepts, where levels differ significantly and own
    intercepts lose less by a standard error; or own weights, where they are better by two. Else the kinds are one model, own
    intercepts, a few models (groups, own weights), and a model for each site (personalised, own fit); the first is taken whose best
    strategy is within a standard error of the best of all. Standard errors are those of differences, from how sites differ.
    """
    mean, spread = means(losses, sites)
    simple = by_tests(tests, level)
    if simple == "personalised":
        return STRATEGIES[_first_close(mean, spread, KINDS)]
    found = _first_close(mean, spread, KINDS[: STRATEGIES.index(simple) + 1])
    mixed = STRATEGIES.index("own weights")
    return STRATEGIES[mixed if _behind(mean, spread, found, mixed) > CLEARLY else found]


def _first_close(mean: np.ndarray, spread: np.ndarray, kinds: Sequence[Sequence[str]]) -> int:
    """The best strategy of the first kind that is within a standard error of the best of all these kinds."""
    of_kind = [min((STRATEGIES.index(strategy) for strategy in kind), key=lambda i: float(mean[i])) for kind in kinds]
    best = min(of_kind, key=lambda i: float(mean[i]))
    return next(i for i in of_kind if _behind(mean, spread, i, best) <= CLOSE)


def _behind(mean: np.ndarray, spread: np.ndarray, i: int, j: int) -> float:
    """How many standard errors more one candidate loses than another."""
    error = np.sqrt(max(spread[i, i] + spread[j, j] - 2 * spread[i, j], 0.0))
    return float((mean[i] - mean[j]) / max(error, 1e-300)) if i != j else 0.0


def model_for(strategy: str, family: str, groups: int) -> str:
    """Which of our models fits the recommended strategy."""
    known: Any = MODELS[strategy]
    text = known if isinstance(known, str) else known.get(family, known.get("", ""))
    return text.format(groups=groups)


def reason(
    strategy: str, found: Mapping[str, Mapping[str, float]] | None, tests: Mapping[str, Any], groups: int
) -> str:
    """One sentence: why this strategy, and how sure that is."""
    why = WHY[strategy].format(groups=groups)
    p = tests["P(y | x)"]["lr"]["p_value"]
    test = f"the test that P(y | x) is the same everywhere has p = {p:.2g}"
    if found is None or strategy == "one model":
        return f"{why}: {test}"
    gain = found["one model"]["loss"] - found[strategy]["loss"]
    return f"{why}: it loses {gain:.3g} less per left-out row than one model, and {test}"
