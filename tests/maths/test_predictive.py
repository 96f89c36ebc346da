"""Predictive quantiles with the variances integrated out, compared with closed forms and with sampling."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm, t

from unpooled.maths import bayes_linear, predictive

P = np.array([0.05, 0.5, 0.95])


def fitted(z, y, intercept=True):
    stats = bayes_linear.statistics(z, y[:, None], np.ones(len(y)))
    return bayes_linear.posterior(stats, intercept=intercept), bayes_linear.axes(stats, intercept=intercept)


def test_without_features_it_is_the_t_interval_of_a_mean():
    y = np.random.default_rng(0).normal(size=6)
    found = predictive.quantiles(*fitted(np.zeros((6, 1)), y), np.zeros((1, 1)), P)[0, 0]
    assert_allclose(found, y.mean() + y.std(ddof=1) * np.sqrt(1 + 1 / 6) * t.ppf(P, 5), rtol=1e-8)


def test_with_many_rows_it_is_the_normal_interval_at_the_most_probable_variances():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(20_000, 3))
    post, along = fitted(z, z @ [1.0, 2.0, 0.0] + rng.normal(size=20_000))
    mean, variance = bayes_linear.predict(post, z[:5])
    found = predictive.quantiles(post, along, z[:5], P)[:, 0]
    assert_allclose(found, mean + np.sqrt(variance) * norm.ppf(P), atol=1e-3)


@pytest.mark.parametrize(("intercept", "tilts"), [(True, (0,)), (False, (0,)), (True, predictive.TILTS)])
def test_quantiles_are_those_of_draws_from_the_mixture(intercept, tilts):
    rng = np.random.default_rng(2)
    z = rng.normal(size=(8, 3))
    post, along = fitted(z, z[:, 0] + 0.5 * rng.normal(size=8), intercept)
    new = rng.normal(size=(2, 3))
    found = predictive.quantiles(post, along, new, P, tilts=tilts)[:, 0]
    mix = predictive.mixture(along, 0, tilts)
    which = rng.choice(len(mix.weights), size=400_000, p=mix.weights)
    rows = (new - post.feature_mean) @ along.basis
    spread = 1 + intercept / 8 + rows**2 @ mix.variance
    for i in range(2):
        mean = (rows @ mix.coef)[i] + post.intercept
        draws = mean[which] + np.sqrt(mix.noise * spread[i])[which] * rng.standard_t(mix.dof, size=len(which))
        assert_allclose(found[i], np.quantile(draws, P), atol=0.02 * np.ptp(found[i]))


@pytest.mark.parametrize("curved", [False, True])
def test_five_rows_are_covered(curved):
    """The figure promised: 90 % intervals from 5 rows of 3 features cover 85 to 95 %, of a plane and of a curve."""
    rng, inside = np.random.default_rng(3), []
    for _ in range(80):
        z, weights = rng.uniform(-2, 2, size=(15, 3)), rng.normal(size=3)
        y = z[:, 0] ** 2 + 0.3 * rng.normal(size=15) if curved else z @ weights + rng.normal(size=15)
        lower, upper = predictive.quantiles(*fitted(z[:5], y[:5]), z[5:], P[[0, 2]])[:, 0].T
        inside.append(np.mean((lower < y[5:]) & (y[5:] < upper)))
    assert 0.86 < np.mean(inside) < 0.95


def test_five_rows_of_many_columns_with_a_common_factor_are_not_covered_too_often():
    rng, inside = np.random.default_rng(4), []
    for _ in range(60):
        factor = rng.normal(size=(25, 1))
        z = factor + rng.normal(size=(25, 12))
        y = z.mean(1) + 0.1 * rng.normal(size=25)
        each = []
        for tilts in ((0,), predictive.TILTS):
            lower, upper = predictive.quantiles(*fitted(z[:5], y[:5]), z[5:], P[[0, 2]], tilts=tilts)[:, 0].T
            each.append(np.mean((lower < y[5:]) & (y[5:] < upper)))
        inside.append(each)
    plain, tilted = np.mean(inside, 0)
    assert tilted < plain - 0.01
    assert tilted > 0.85
