"""Histograms of residuals, their quantiles and coverages."""

import numpy as np
from scipy.stats import norm, t

from unpooled.maths import calibration

LEVELS = np.arange(0.05, 0.96, 0.05)


def counts_of(residuals):
    return calibration.histogram(residuals[:, None], np.ones(len(residuals)))


def test_normal_residuals_give_normal_quantiles():
    counts = counts_of(np.random.default_rng(0).normal(size=200_000))
    p = np.array([0.01, 0.05, 0.5, 0.95, 0.99])
    np.testing.assert_allclose(calibration.quantile(counts, p)[0], norm.ppf(p), atol=0.02)
    np.testing.assert_allclose(calibration.coverage(counts, LEVELS)[0], LEVELS, atol=0.005)


def test_intervals_cover_fresh_draws_of_heavy_tails_and_skew():
    rng = np.random.default_rng(1)
    for draw in (lambda n: t(2).rvs(n, random_state=rng), lambda n: rng.exponential(size=n) - 0.3):
        counts, fresh = counts_of(draw(4000)), draw(20_000)
        for level in (0.5, 0.9):
            lower, upper = calibration.quantile(counts, np.array([0.5 - level / 2, 0.5 + level / 2]))[0]
            assert abs(np.mean((fresh > lower) & (fresh < upper)) - level) < 0.03


def test_counts_add_over_rows_and_clients_and_keep_weights():
    residuals = np.random.default_rng(2).normal(size=(2, 50, 3))
    w = np.random.default_rng(3).random((2, 50))
    stacked = calibration.histogram(residuals, w)
    assert stacked.shape == (2, 3, calibration.BINS)
    np.testing.assert_allclose(stacked.sum(-1), np.repeat(w.sum(1)[:, None], 3, 1))
    pooled = calibration.histogram(residuals.reshape(100, 3), w.reshape(100))
    np.testing.assert_allclose(stacked.sum(0), pooled)


def test_too_few_residuals_leave_the_normal_law():
    counts = counts_of(np.full(10, 3.0))
    np.testing.assert_allclose(calibration.quantile(counts, np.array([0.9]))[0], norm.ppf([0.9]))


def test_raw_quantiles_are_kept_where_they_fit_and_replaced_where_they_do_not():
    rng, p = np.random.default_rng(4), np.array([0.05, 0.95])
    right = sum(calibration.improves(counts_of(rng.normal(size=80))[0], p, norm.ppf(p)) for _ in range(100))
    assert right <= 5  # of 100 models whose residuals are normal
    for scale in (0.5, 2.0):
        counts = counts_of(scale * rng.normal(size=300))[0]
        assert calibration.improves(counts, p, norm.ppf(p))
    assert not calibration.improves(counts_of(np.full(10, 3.0))[0], p, norm.ppf(p))


def test_the_interval_score_is_the_width_and_a_penalty_outside():
    ends, p = np.array([-1.0, 2.0]), np.array([0.05, 0.95])
    np.testing.assert_allclose(calibration.interval_score(np.array([0.0, 3.0, -2.0]), ends, p), [3.0, 23.0, 23.0])
