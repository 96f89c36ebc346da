"""Missing values inside the E-step, against plain row-by-row formulas."""

import numpy as np
import pytest
from mixtures import SHAPES, close, natural, one_row, oracle, random_mixture, rows_with_holes, sample

from unpooled.maths import gaussian, missing, mixture
from unpooled.maths.mixture import Stats


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_textbook_row_by_row(shape):
    rng = np.random.default_rng(1)
    params = random_mixture(rng, 3, 5, shape)
    x, w = rows_with_holes(rng, 80, 5), rng.uniform(0, 2, 80)
    x[3], w[4:8] = np.nan, 0
    x[4], x[5] = np.nan, np.inf
    close(mixture.e_step(params, x, w, shape), oracle(params, x, w, shape), 1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_log_density_of_what_is_there(shape):
    rng = np.random.default_rng(2)
    params = random_mixture(rng, 3, 5, shape)
    x = rows_with_holes(rng, 40, 5)
    x[0] = np.nan
    covs = gaussian.full_covs(params, shape)
    expected = np.array([one_row(row, covs, params)[0] for row in x])
    np.testing.assert_allclose(mixture.log_joint(params, x, shape), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(mixture.log_density(params, x, shape), np.logaddexp.reduce(expected, 1), atol=1e-10)


def test_a_row_of_holes_says_what_the_prior_says():
    params = random_mixture(np.random.default_rng(3), 4, 3, "full")
    stats = mixture.e_step(params, np.full((10, 3), np.nan), np.ones(10), "full")
    np.testing.assert_allclose(stats.n, 10 * params.weights, rtol=1e-12)
    np.testing.assert_allclose(stats.x, 0, atol=1e-12)
    np.testing.assert_allclose(stats.xx, stats.n[:, None] * params.covs, rtol=1e-10)
    assert abs(stats.loglik) < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_leading_axes_stay(shape):
    """Stacked, with weights of their own, equals one at a time; some without holes, some with nothing else."""
    rng = np.random.default_rng(4)
    params = random_mixture(rng, 3, 4, shape)
    x = rows_with_holes(rng, 7 * 30, 4).reshape(7, 30, 4)
    x[2], x[5, :, 1] = rng.normal(size=(30, 4)), np.nan
    w = rng.integers(0, 2, (7, 30)).astype(float)
    log_weights = np.log(rng.dirichlet(np.ones(3), 7))
    stacked = mixture.e_step(params, x, w, shape, log_weights)
    for i in range(7):
        single = mixture.e_step(params, x[i], w[i], shape, log_weights[i])
        close(Stats(*(a[i] for a in stacked)), single, 1e-11)


def test_thousands_of_patterns_and_wide_rows():
    """More columns than one code word holds, every row another pattern, in several portions."""
    rng = np.random.default_rng(5)
    params = random_mixture(rng, 2, 60, "full")
    x = rows_with_holes(rng, 1500, 60)
    whole = mixture.e_step(params, x, np.ones(1500), "full")
    found, ids = missing.patterns(x, np.arange(1500))
    assert len(found) > 1000
    np.testing.assert_array_equal(found[ids], np.isnan(x))
    some = rng.choice(1500, 12, replace=False)
    w = np.isin(np.arange(1500), some).astype(float)
    close(mixture.e_step(params, x, w, "full"), oracle(params, x[some], np.ones(12), "full"), 1e-9)
    halves = [mixture.e_step(params, x[a:b], np.ones(b - a), "full") for a, b in ((0, 700), (700, 1500))]
    close(Stats(*(a + b for a, b in zip(*halves))), whole, 1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_likelihood_rises(shape):
    rng = np.random.default_rng(6)
    params = random_mixture(rng, 3, 4, shape)
    x, logliks = rows_with_holes(rng, 400, 4), []
    for _ in range(25):
        stats = mixture.e_step(params, x, np.ones(400), shape)
        logliks.append(float(stats.loglik))
        params = mixture.m_step(params, stats, shape, 0.0)
    assert (np.diff(logliks) > -1e-9 * abs(logliks[0])).all()
    assert logliks[-1] > logliks[0] + 1


def test_far_from_the_origin():
    rng = np.random.default_rng(7)
    params = random_mixture(rng, 3, 4, "full")
    x, shift = rows_with_holes(rng, 300, 4), 1e6 * np.ones(4)
    near = mixture.e_step(params, x, np.ones(300), "full")
    far = mixture.e_step(params._replace(means=params.means + shift), x + shift, np.ones(300), "full")
    close(far, near, 1e-7)


@pytest.mark.parametrize("shape", SHAPES)
def test_components_far_apart(shape):
    rng = np.random.default_rng(11)
    params = random_mixture(rng, 3, 4, shape)
    params = params._replace(means=params.means + 1e5 * np.array([0, 0, 1])[:, None])
    x = sample(rng, params, shape, 60)
    x[rng.random(x.shape) < 0.3] = np.nan
    close(mixture.e_step(params, x, np.ones(60), shape), oracle(params, x, np.ones(60), shape), 1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_conditional_moments_and_imputation(shape):
    rng = np.random.default_rng(8)
    params = random_mixture(rng, 3, 5, shape)
    x = rows_with_holes(rng, 50, 5)
    mean, covariance = missing.conditional_moments(params, x, shape)
    covs = gaussian.full_covs(params, shape)
    for row, got_mean, got_cov in zip(x, mean, covariance):
        joint, means, spreads = one_row(row, covs, params)
        r = np.exp(joint - np.logaddexp.reduce(joint))
        middle = r @ means
        off = means - middle
        np.testing.assert_allclose(got_mean, middle, atol=1e-10)
        np.testing.assert_allclose(
            got_cov, np.einsum("k,kij->ij", r, spreads + off[:, :, None] * off[:, None]), atol=1e-10
        )
    filled = missing.impute(params, x, shape)
    np.testing.assert_allclose(filled, mean, atol=1e-12)
    np.testing.assert_array_equal(filled[~np.isnan(x)], x[~np.isnan(x)])
    assert np.isnan(x).any()  # the input is left alone


def test_conditional_groups_cover_the_holes_once():
    rng = np.random.default_rng(9)
    params = random_mixture(rng, 2, 4, "full")
    x = rows_with_holes(rng, 60, 4)
    groups = list(missing.conditional(params, x, "full"))
    rows = np.concatenate([g.rows for g in groups])
    np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(np.isnan(x).any(1)))
    for g in groups:
        assert np.isnan(x[np.ix_(g.rows, g.missing)]).all()
        np.testing.assert_allclose(g.r.sum(1), 1)
    assert not list(missing.conditional(params, np.zeros((3, 4)), "full"))


def test_ill_conditioned_patterns():
    """Nearly collinear columns: the completed second moment stays that of the textbook to what float64 allows."""
    rng = np.random.default_rng(10)
    base = rng.normal(size=(4, 2))
    cov = base @ base.T + 1e-7 * np.eye(4)
    params = mixture.Params(np.ones(1), np.zeros((1, 4)), natural(cov[None], "full"))
    x = np.linalg.cholesky(cov) @ rng.normal(size=(4, 50))
    x = x.T.copy()
    x[::2, 1], x[1::2, 3] = np.nan, np.nan
    close(mixture.e_step(params, x, np.ones(50), "full"), oracle(params, x, np.ones(50), "full"), 1e-6)
