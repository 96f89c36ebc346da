"""What `Pooling` concludes from totals: tests of shift, held-out losses with standard errors by site, the recommendation.

Nothing is sent. A strategy is a way to model the sites, from "one model" to "own fit" (`STRATEGIES`); a candidate is a strategy
with a number of components.
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

CLEARLY = 2.0  # standard errors by which "own weights" must be better if the tests find no difference of slopes
CLOSE = 1.0  # a simpler strategy within so many standard errors of the best one is preferred
KINDS = (("one model",), ("own intercepts",), ("groups", "own weights"), ("personalised", "own fit"))
MODELS = {  # strategy -> the model to fit, or family -> the model; "" is any other family
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
    """Tests that sites share P(y | x), intercepts and slopes.

    `common` is the loss of one model with q coefficients, `slopes` that of common slopes with own intercepts.
    """
    rank = float(apart.rank)
    own = float(apart.own_loss)
    df_intercepts = sites - 1  # degrees of freedom
    df_all = rank - q
    df_slopes = df_all - df_intercepts
    if family == "normal":
        whole = homogeneity.f_test(2 * (common - own), df_all, 2 * own, n - rank)
        score = homogeneity.f_test(float(apart.score), df_all, 2 * own, n - rank)
        intercepts = homogeneity.f_test(2 * (common - slopes), df_intercepts, 2 * slopes, n - sites - q + 1)
        own_slopes = homogeneity.f_test(2 * (slopes - own), df_slopes, 2 * own, n - rank)
    else:
        factor = (float(apart.expected) - q) / max(df_all, 1.0)  # corrects the ratio's mean for few rows
        whole = homogeneity.likelihood_ratio(2 * (common - own), df_all, factor)
        score = homogeneity.likelihood_ratio(float(apart.score), df_all)
        intercepts = homogeneity.likelihood_ratio(2 * (common - slopes), df_intercepts)
        own_slopes = homogeneity.likelihood_ratio(2 * (slopes - own), df_slopes, factor)
    return {"P(y | x)": {"lr": whole, "score": score}, "intercepts": {"lr": intercepts}, "slopes": {"lr": own_slopes}}


def means(sums: Losses, sites: float) -> tuple[np.ndarray, np.ndarray]:
    """(r,) mean held-out losses of r candidates, and (r, r) their covariance, estimated from the differences between sites."""
    n = float(sums.n)
    mean = sums.total / n
    # takes (rows, losses) of a site to its losses minus rows x mean
    about = np.column_stack([-mean, np.eye(len(mean))])
    return mean, about @ unpack_triangle(sums.outer) @ about.T / n**2 * sites / max(sites - 1, 1.0)


def chosen(sums: Losses, sizes: Sequence[int], sites: float) -> list[int]:
    """The candidate of each strategy: the fewest components whose loss is within a standard error of the best number's."""
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
    """Held-out loss of every strategy and its difference to the best, with standard errors from the differences between sites."""
    mean, spread = means(sums, sites)
    best = int(np.argmin(mean))
    pair = np.diag(spread) + spread[best, best] - 2 * spread[:, best]
    error = np.sqrt(np.maximum(np.diag(spread), 0.0))
    apart = np.sqrt(np.maximum(pair, 0.0))
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
    """The strategy that the tests alone suggest."""
    if not tests["P(y | x)"]["lr"]["p_value"] < level:
        return "one model"
    return "personalised" if tests["slopes"]["lr"]["p_value"] < level else "own intercepts"


def recommended(losses: Losses, sites: float, tests: Mapping[str, Any], level: float) -> str:
    """The strategy with the least held-out loss, or the simplest one that is within a standard error of it.

    If the tests find different slopes: `KINDS` lists the strategies from simple to complex, and the first kind is taken whose best
    strategy is within a standard error of the best of all.

    If they do not: "one model"; or "own intercepts", if the tests find different intercepts and these lose less by more than a standard
    error; or "own weights", if they lose less than that choice by more than two standard errors.

    Standard errors are those of differences of losses, estimated from the differences between sites.
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
    of_kind = []
    for kind in kinds:
        places = [STRATEGIES.index(strategy) for strategy in kind]
        of_kind.append(min(places, key=lambda i: float(mean[i])))
    best = min(of_kind, key=lambda i: float(mean[i]))
    return next(i for i in of_kind if _behind(mean, spread, i, best) <= CLOSE)


def _behind(mean: np.ndarray, spread: np.ndarray, i: int, j: int) -> float:
    """By how many standard errors the loss of candidate i exceeds that of candidate j."""
    if i == j:
        return 0.0
    variance = spread[i, i] + spread[j, j] - 2 * spread[i, j]
    error = np.sqrt(max(variance, 0.0))
    return float((mean[i] - mean[j]) / max(error, 1e-300))


def model_for(strategy: str, family: str, groups: int) -> str:
    """Which of our models fits the recommended strategy."""
    known: Any = MODELS[strategy]
    text = known if isinstance(known, str) else known.get(family, known.get("", ""))
    return text.format(groups=groups)


def reason(
    strategy: str, found: Mapping[str, Mapping[str, float]] | None, tests: Mapping[str, Any], groups: int
) -> str:
    """One sentence: why this strategy, and the evidence for it."""
    why = WHY[strategy].format(groups=groups)
    p = tests["P(y | x)"]["lr"]["p_value"]
    test = f"the test that P(y | x) is the same everywhere has p = {p:.2g}"
    if found is None or strategy == "one model":
        return f"{why}: {test}"
    gain = found["one model"]["loss"] - found[strategy]["loss"]
    return f"{why}: it loses {gain:.3g} less per left-out row than one model, and {test}"
