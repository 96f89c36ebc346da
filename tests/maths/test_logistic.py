"""Sums over rows for linear classifiers: blocks of rows, derivatives, and longer Newton steps."""

import numpy as np
import pytest

from unpooled.maths import logistic


def problem(n=60, d=3, scores=1, seed=0):
    rng = np.random.default_rng(seed)
    x, coef = rng.normal(size=(n, d)) + 5.0, rng.normal(size=(scores, d + 1))
    return x, rng.integers(max(2, scores), size=n), rng.random(n) + 0.5, coef


@pytest.mark.parametrize("ones", ["first", "last", "none"])
def test_blocks_are_all_rows_about_the_centre(ones, monkeypatch):
    monkeypatch.setattr(logistic, "FEWEST", 16)
    monkeypatch.setattr(logistic, "CELLS", 1)
    x = problem()[0]
    found = np.concatenate([z.copy() for _, z in logistic.blocks(x, x.mean(0), ones)])
    one, centred = np.ones((60, 1)), x - x.mean(0)
    wanted = {"first": [one, centred], "last": [centred, one], "none": [centred]}[ones]
    np.testing.assert_array_equal(found, np.concatenate(wanted, 1))


@pytest.mark.parametrize("scores", [1, 3])
def test_gradient_and_second_derivatives_are_those_of_the_log_likelihood(scores):
    x, y, w, coef = problem(scores=scores)
    ((_, z),) = logistic.blocks(x, x.mean(0))

    def loglik(flat):
        return w @ logistic.probabilities(z, y, flat.reshape(coef.shape))[1]

    def gradient(flat):
        p = logistic.probabilities(z, y, flat.reshape(coef.shape))[0]
        return logistic.gradient_of(y, w, p, z, first=int(scores == 1))

    at, p = coef.ravel(), logistic.probabilities(z, y, coef)[0]
    steps = 1e-5 * np.eye(at.size)
    slopes = [(loglik(at + s) - loglik(at - s)) / 2e-5 for s in steps]
    np.testing.assert_allclose(gradient(at), slopes, atol=1e-6)
    bends = np.stack([(gradient(at - s) - gradient(at + s)) / 2e-5 for s in steps])
    np.testing.assert_allclose(logistic.second_of(w, p, z), bends, atol=1e-6)
    within = bends.reshape(scores, 4, scores, 4)[np.arange(scores), :, np.arange(scores)]
    np.testing.assert_allclose(logistic.second_within(w, p, z), within, atol=1e-4)


def test_a_step_that_repeats_half_of_the_last_one_is_twice_as_long():
    second, step = np.diag([1.0, 4.0]), np.array([1.0, -2.0])
    np.testing.assert_allclose(logistic.lengthened(step, 2 * step, second), 2 * step)
    np.testing.assert_array_equal(logistic.lengthened(step, np.zeros(2), second), step)  # the first step
    np.testing.assert_array_equal(logistic.lengthened(step, -step, second), step)  # back again
