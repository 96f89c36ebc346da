"""Bayesian linear regression from sums: against scikit-learn's Gaussian process and Bayesian ridge, and against its own laws."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct, WhiteKernel
from sklearn.linear_model import BayesianRidge

from unpooled import tree
from unpooled.maths import bayes_linear as bl


@pytest.fixture(name="rows")
def rows_():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(80, 5))
    return z, z @ rng.normal(size=(5, 2)) + 0.3 * rng.normal(size=(80, 2)), np.ones(80)


def test_fixed_variances_give_the_gaussian_process_of_the_linear_kernel(rows):
    z, y, w = rows
    post = bl.posterior(bl.statistics(z, y[:, :1], w), noise=0.09, prior=1.0)
    gp = GaussianProcessRegressor(
        DotProduct(1e-9, sigma_0_bounds="fixed") + WhiteKernel(0.09, noise_level_bounds="fixed"), optimizer=None
    ).fit(z, y[:, 0])
    new = np.random.default_rng(1).normal(size=(7, 5))
    mean, std = gp.predict(new, return_std=True)
    ours, variance = bl.predict(post, new)
    np.testing.assert_allclose(ours[:, 0], mean, rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(variance[:, 0]), std, rtol=1e-8)
    np.testing.assert_allclose(post.log_evidence[0], gp.log_marginal_likelihood_value_, rtol=1e-8)


def test_the_evidence_is_the_density_of_y(rows):
    z, y, w = rows
    post = bl.posterior(bl.statistics(z, y, w), noise=[0.2, 0.1], prior=[0.7, 2.0])
    for j, (noise, prior) in enumerate(((0.2, 0.7), (0.1, 2.0))):
        density = multivariate_normal(np.zeros(80), prior * z @ z.T + noise * np.eye(80)).logpdf(y[:, j])
        np.testing.assert_allclose(post.log_evidence[j], density, rtol=1e-10)


def test_learned_variances_are_those_of_bayesian_ridge(rows):
    z, y, w = rows
    ridge = BayesianRidge(
        alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, fit_intercept=False, tol=1e-13, max_iter=5000, compute_score=True
    ).fit(z, y[:, 1])
    post = bl.posterior(bl.statistics(z, y, w))
    np.testing.assert_allclose(1 / post.noise_variance[1], ridge.alpha_, rtol=1e-6)
    np.testing.assert_allclose(1 / post.prior_variance[1], ridge.lambda_, rtol=1e-6)
    np.testing.assert_allclose(post.weights[:, 1], ridge.coef_, rtol=1e-7)
    assert post.log_evidence[1] >= ridge.scores_[-1] - 1e-8


def test_learned_variances_are_a_maximum(rows):
    z, y, w = rows
    stats = bl.statistics(z, y, w)
    best = bl.posterior(stats)
    rng = np.random.default_rng(2)
    for _ in range(30):
        noise, prior = (v * np.exp(0.3 * rng.normal(size=2)) for v in (best.noise_variance, best.prior_variance))
        assert (bl.posterior(stats, noise=noise, prior=prior).log_evidence <= best.log_evidence).all()


def test_rows_add_and_subtract(rows):
    z, y, w = rows
    whole = bl.statistics(z, y, w)
    parts = [bl.statistics(z[i::3], y[i::3], w[i::3]) for i in range(3)]
    for a, b in zip(whole, tree.add(parts[0], tree.add(parts[1], parts[2]))):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    stacked = bl.statistics(np.stack([z, 2 * z]), np.stack([y, y]), np.stack([w, w]))
    for a, b in zip(whole, stacked):
        np.testing.assert_allclose(a, b[0], rtol=1e-12)


def test_a_weight_of_two_is_the_row_twice(rows):
    z, y, _ = rows
    doubled = bl.statistics(z, y, np.where(np.arange(80) < 10, 2.0, 1.0))
    for a, b in zip(doubled, bl.statistics(np.vstack([z, z[:10]]), np.vstack([y, y[:10]]), np.ones(90))):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_slopes_are_those_of_the_evidence(rows):
    z, y, w = rows
    stats = bl.statistics(z, y, w)
    slope = bl.cotangent(bl.slopes(bl.posterior(stats)), z, y, w)
    for i, j in ((0, 0), (5, 3), (41, 2)):
        step = np.zeros_like(z)
        step[i, j] = 1e-5
        up, down = (bl.posterior(bl.statistics(z + s * step, y, w)).log_evidence.sum() for s in (1, -1))
        np.testing.assert_allclose(slope[i, j], (up - down) / 2e-5, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
def test_left_out_rows_are_predicted_as_by_a_fit_without_them(rows, intercept):
    z, y, w = rows
    z = z + 3.0
    post = bl.posterior(bl.statistics(z, y, w), intercept=intercept, noise=0.1, prior=2.0)
    mean, variance = bl.left_out(post, z, y)
    for i in (0, 17):
        others = np.arange(80) != i
        without = bl.posterior(
            bl.statistics(z[others], y[others], w[others]), intercept=intercept, noise=0.1, prior=2.0
        )
        expected, spread = bl.predict(without, z[i : i + 1])
        np.testing.assert_allclose(mean[i], expected[0], rtol=1e-7)
        np.testing.assert_allclose(variance[i], spread[0], rtol=1e-7)


def test_an_offset_is_free_and_units_do_not_matter(rows):
    z, y, w = rows
    plain = bl.posterior(bl.statistics(z, y, w), intercept=True, standardize=True)
    units = np.array([1.0, 1e3, 1e-4, 7.0, 1.0])
    other = bl.posterior(bl.statistics(z * units + 0.5 * units, y + 100, w), intercept=True, standardize=True)
    np.testing.assert_allclose(bl.predict(other, z * units + 0.5 * units)[0], bl.predict(plain, z)[0] + 100, rtol=1e-7)
    np.testing.assert_allclose(bl.predict(other, z * units + 0.5 * units)[1], bl.predict(plain, z)[1], rtol=1e-7)
    np.testing.assert_allclose(other.log_evidence, plain.log_evidence, rtol=1e-7)


def test_draws_have_the_predicted_moments(rows):
    z, y, w = rows
    post = bl.posterior(bl.statistics(z, y, w), intercept=True)
    draws = bl.draw(post, z[:3], 40_000, np.random.default_rng(0))
    mean, variance = bl.predict(post, z[:3])
    np.testing.assert_allclose(draws.mean(-1), mean, atol=0.01)
    np.testing.assert_allclose(draws.var(-1), variance, rtol=0.05)


def test_features_that_say_nothing_leave_pure_noise():
    rng = np.random.default_rng(0)
    post = bl.posterior(bl.statistics(np.zeros((50, 3)), rng.normal(size=(50, 1)), np.ones(50)))
    np.testing.assert_allclose(post.weights, 0.0)
    assert 0.5 < post.noise_variance[0] < 2
