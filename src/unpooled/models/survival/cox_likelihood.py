"""The partial likelihood of `Cox` at given coefficients: one SUM for value and gradient, one more for the second derivative.

Stratified by site, one SUM gives all three. The penalty is added elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.models.survival import cox_questions as questions
from unpooled.models.survival import partial_likelihood
from unpooled.models.survival.cox_questions import At, Hazard, Means, SiteAt, square
from unpooled.models.survival.cox_start import Setting
from unpooled.models.survival.partial_likelihood import Sums, Terms


class Options(NamedTuple):
    """Which likelihood: the columns, the handling of ties, the strata."""

    columns: dict  # where times, events and covariates are
    ties: str
    strata: str | None


class Value(NamedTuple):
    """The log-likelihood at some coefficients, its gradient, and what the second derivative needs."""

    loglik: float
    gradient: np.ndarray  # (k,)
    sums: Sums | None = None  # over all clients, by step of time
    terms: Terms | None = None
    information: np.ndarray | None = None  # (k, k) minus the second derivative, if stratified by site


def value(fed: Federation, options: Options, setting: Setting, coef: np.ndarray) -> Value:
    """The log partial likelihood and its gradient: one SUM."""
    if options.strata == "site":
        ask = questions.site_likelihood.using(columns=options.columns, ties=options.ties)
        up = fed.sum(ask, SiteAt(coef, setting.scale))
        information = square(to_numpy(up.zz), len(coef))
        return Value(float(up.loglik), to_numpy(up.gradient), information=information)
    up = fed.sum(questions.risk_sums.using(columns=options.columns), _at(options, setting, coef))
    sums = Sums(*(to_numpy(a) for a in up[1:]))
    terms = partial_likelihood.terms(setting.deaths, sums, options.ties)
    loglik = float(setting.died_z @ coef) + terms.loglik
    return Value(loglik, setting.died_z + terms.gradient, sums, terms)


def information(fed: Federation, options: Options, setting: Setting, coef: np.ndarray, here: Value) -> np.ndarray:
    """(k, k) minus the second derivative: one SUM, none where sites are strata."""
    if here.information is not None:
        return here.information
    assert here.terms is not None
    hazard = _hazard(options, setting, coef, here.terms)
    up = fed.sum(questions.curvature.using(columns=options.columns), hazard)
    return square(to_numpy(up.zz), len(coef)) - here.terms.outer


def products_by_site(
    fed: Federation, options: Options, setting: Setting, coef: np.ndarray, here: Value | None
) -> np.ndarray:
    """(k, k) the sum over sites of the product of a site's score with itself: one SUM."""
    if here is None or here.terms is None:
        ask = questions.site_scores.using(columns=options.columns, ties=options.ties)
        return square(to_numpy(fed.sum(ask, SiteAt(coef, setting.scale)).zz), len(coef))
    terms = here.terms
    hazard = _hazard(options, setting, coef, terms)
    means = Means(hazard, terms.mean, np.cumsum(terms.hazard_mean, 0), terms.relief_mean)
    return square(to_numpy(fed.sum(questions.scores_by_site.using(columns=options.columns), means).zz), len(coef))


def _at(options: Options, setting: Setting, coef: np.ndarray) -> At:
    """What goes down with a question at these coefficients."""
    tied = partial_likelihood.tied(setting.deaths, options.ties)
    return At(coef, setting.scale, setting.starts, tied)


def _hazard(options: Options, setting: Setting, coef: np.ndarray, terms: Terms) -> Hazard:
    """What goes down with the question for the second derivative."""
    return Hazard(_at(options, setting, coef), np.cumsum(terms.hazard), terms.relief)
