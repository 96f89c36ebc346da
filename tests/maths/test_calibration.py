"""Histograms of residuals, their quantiles and coverages."""

import numpy as np
from scipy.stats import norm, t

from unpooled.maths import calibration


def counts_of(residuals):
    return calibration.histogram(residuals[:, None], np.ones(len(residuals)))


def test_normal_residuals_give_normal_quantiles():
    counts = counts_of(np.random.default_rng(0).normal(size=200_000))
    p = np.array([0.01, 0.05, 0.5, 0.95, 0.99])
    np.testing.assert_allclose(calibration.quantile(counts, p)[0], norm.ppf(p), atol=0.02)


def test_intervals_cover_fresh_draws_of_heavy_tails_and_skew():
    rng = np.random.default_rng(1)
    for draw in (lambda n: t(2).rvs(n, random_state=rng), lambda n: rng.exponential(size=n) - 0.3):
        counts, fresh = counts_of(draw(4000)), draw(20_000)
        for level in (0.5, 0.9):
            lower, upper = calibration.quantile(counts, np.array([0.5 - level / 2, 0.5 + level / 2]))[0]
            assert abs(np.mean((fresh > lower) & (fresh < upper)) - level) < 0.03


def test_neighbouring_quantiles_make_an_end_steadier():
    rng, p = np.random.default_rng(5), np.array([0.05, 0.95])
    draws = rng.normal(size=(400, 500))
    ours = np.stack([calibration.quantile(counts_of(rows), p)[0] for rows in draws])
    plain = np.stack([np.quantile(rows, p, method="weibull") for rows in draws])
    assert (ours.std(0) < 0.97 * plain.std(0)).all()
    np.testing.assert_allclose(ours.mean(0), norm.ppf(p), atol=0.02)


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


def test_ends_move_to_the_residuals_as_far_as_chance_does_not_explain_the_difference():
    rng, p = np.random.default_rng(4), np.array([0.05, 0.95])
    raw = np.array([[-2.0, 3.0], [0.0, 10.0]])
    np.testing.assert_allclose(calibration.moved(raw, raw, p, 100.0), raw)
    found = raw + 0.1 * np.array([-1.0, 1.0]) * (raw[:, 1:] - raw[:, :1]) / 2  # both ends 10 % farther out
    z = norm.ppf(p)
    error = 0.05 * 0.95 / (norm.pdf(z[1]) * z[1]) ** 2  # squared, of one quantile of one row, relative to the quantile
    for n in (50.0, 165.0, 10_000.0):
        share = (calibration.moved(raw, found, p, n) - raw) / (found - raw)
        np.testing.assert_allclose(share, 0.1**2 / (0.1**2 + error / 2 / n), rtol=1e-12)
    for scale in (0.5, 1.0, 2.0):
        quantiles = [calibration.quantile(counts_of(scale * rng.normal(size=300)), p)[0] for _ in range(50)]
        moved = np.stack([calibration.moved(z[None], found[None], p, 300.0)[0] for found in quantiles])
        assert moved.std(0).max() <= np.std(quantiles, 0).max()
        np.testing.assert_allclose(moved.mean(0), scale * z, rtol=0.05)
