"""Scores and curvatures are derivatives of the log-likelihood, which is scipy's."""

import numpy as np
import pytest
from scipy import stats

from unpooled.models.glm import families

ALPHA = 0.7
PAIRS = [(family, link) for family, law in families.FAMILIES.items() for link in law.links]


def rows(family: str, link: str):
    rng = np.random.default_rng(3)
    mu = rng.uniform(0.2, 0.8, 40) if family == "binomial" else rng.uniform(0.5, 3.0, 40)
    y = {
        "normal": lambda: rng.normal(mu),
        "binomial": lambda: (rng.random(40) < mu).astype(float),
        "poisson": lambda: rng.poisson(mu).astype(float),
        "gamma": lambda: rng.gamma(2.0, mu / 2),
        "negative_binomial": lambda: rng.negative_binomial(2, 2 / (2 + mu)).astype(float),
    }[family]()
    return families.LINKS[link].of(mu), y, mu


def half_loss(family, link, eta, y):
    return 0.5 * families.terms(family, link, eta, y, ALPHA).deviance


@pytest.mark.parametrize(("family", "link"), PAIRS)
def test_scores_and_curvatures_are_derivatives_of_the_deviance(family, link):
    eta, y, _ = rows(family, link)
    found = families.terms(family, link, eta, y, ALPHA)
    h = 1e-5
    below, here, above = (half_loss(family, link, eta + d, y) for d in (-h, 0, h))
    np.testing.assert_allclose(found.score, -(above - below) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.observed, (above - 2 * here + below) / h**2, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("family", "link"), PAIRS)
def test_expected_curvature_is_the_variance_of_the_score(family, link):
    eta, _, mu = rows(family, link)
    law = families.FAMILIES[family]
    slope = families.LINKS[link].slope(eta, mu)
    expected = families.terms(family, link, eta, mu, ALPHA).expected
    np.testing.assert_allclose(expected, slope**2 / law.variance(mu, ALPHA), rtol=1e-12)


@pytest.mark.parametrize("link", families.LINKS)
def test_links_are_inverse_and_their_slopes_are_slopes(link):
    how, mu = families.LINKS[link], np.linspace(0.1, 0.9, 9)
    eta = how.of(mu)
    np.testing.assert_allclose(how.mean(eta), mu, rtol=1e-12)
    h = 1e-6
    np.testing.assert_allclose(how.slope(eta, mu), (how.mean(eta + h) - how.mean(eta - h)) / (2 * h), rtol=1e-7)


def test_log_likelihoods_are_those_of_scipy():
    scale = 0.4
    laws = {
        "binomial": lambda y, mu: stats.bernoulli.logpmf(y, mu),
        "poisson": lambda y, mu: stats.poisson.logpmf(y, mu),
        "gamma": lambda y, mu: stats.gamma.logpdf(y, 1 / scale, scale=mu * scale),
        "negative_binomial": lambda y, mu: stats.nbinom.logpmf(y, 1 / ALPHA, 1 / (1 + ALPHA * mu)),
        "normal": lambda y, mu: stats.norm.logpdf(y, mu, np.sqrt(scale)),
    }
    for family, logpdf in laws.items():
        link = families.FAMILIES[family].link
        eta, y, mu = rows(family, link)
        deviance = families.terms(family, link, eta, y, ALPHA).deviance.sum()
        best = families.best_loglik(family, y, ALPHA).sum()
        found = families.loglik(family, "", deviance, best, len(y), scale)
        np.testing.assert_allclose(found, logpdf(y, mu).sum(), rtol=1e-11, err_msg=family)


def test_derivatives_in_alpha():
    eta, y, _ = rows("negative_binomial", "log")
    h, t = 1e-4, np.log(ALPHA)
    at = lambda d, e=0.0: families.alpha_terms("log", eta + e, y, float(np.exp(t + d)))  # noqa: E731
    below, here, above = (at(d).loglik for d in (-h, 0.0, h))
    np.testing.assert_allclose(at(0.0).score, (above - below) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(at(0.0).curvature, -(above - 2 * here + below) / h**2, rtol=1e-4, atol=1e-5)
    mixed = -(at(0.0, h).score - at(0.0, -h).score) / (2 * h)
    np.testing.assert_allclose(at(0.0).mixed, mixed, rtol=1e-5, atol=1e-8)


def test_logistic_rows_are_exact_on_both_ends():
    found = families.terms("binomial", "logit", np.array([-800.0, 800.0, 800.0]), np.array([0.0, 1.0, 0.0]))
    np.testing.assert_array_equal(found.deviance, [0.0, 0.0, 1600.0])
    np.testing.assert_array_equal(found.score, [0.0, 0.0, -1.0])


def test_a_mean_outside_the_family_is_said_and_adds_nothing():
    found = families.terms("gamma", "inverse", np.array([1.0, -1.0]), np.array([1.0, 1.0]))
    np.testing.assert_array_equal(found.outside, [False, True])
    assert found.deviance[1] == found.score[1] == found.observed[1] == 0
