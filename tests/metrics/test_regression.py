"""Regression metrics on predictions whose quality is known."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import root_mean_squared_error

from unpooled.metrics import regression as metrics


@pytest.fixture(name="drawn")
def drawn_():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=50_000), rng.uniform(0.5, 2, size=50_000)
    return rng.normal(mean, std), mean, std


def test_errors_agree_with_their_definitions(drawn):
    y, mean, std = drawn
    assert metrics.rmse(y, mean) == pytest.approx(root_mean_squared_error(y, mean))
    assert metrics.nlpd(y, mean, std) == pytest.approx(-norm(mean, std).logpdf(y).mean())
    lower, upper = metrics.normal_interval(mean, std)(0.9)
    assert metrics.coverage(y, lower, upper) == pytest.approx(0.9, abs=0.01)
    assert metrics.width(lower, upper) == pytest.approx(2 * 1.6449 * std.mean(), rel=1e-3)


def test_honest_predictions_are_calibrated_and_others_are_not(drawn):
    y, mean, std = drawn
    honest = metrics.calibration(y, metrics.normal_interval(mean, std))
    assert honest.ece < 0.005
    assert honest.mce < 0.01
    sure = metrics.calibration(y, metrics.normal_interval(mean, std / 2))
    expected = 2 * norm.cdf(norm.ppf(0.5 + metrics.LEVELS / 2) / 2) - 1
    np.testing.assert_allclose(sure.covered, expected, atol=0.01)
    assert sure.ece == pytest.approx(np.abs(metrics.LEVELS - expected).mean(), abs=0.005)
    assert sure.brier > honest.brier


def test_the_brier_score_of_honest_predictions_is_the_variance_of_a_coin(drawn):
    y, mean, std = drawn
    honest = metrics.calibration(y, metrics.normal_interval(mean, std))
    assert honest.brier == pytest.approx((metrics.LEVELS * (1 - metrics.LEVELS)).mean(), abs=0.003)
