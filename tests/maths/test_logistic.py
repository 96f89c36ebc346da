"""Sums over rows for linear classifiers: blocks of rows, derivatives, and longer Newton steps."""

import numpy as np
import pytest

from unpooled.maths import logistic


def problem(n=60, d=3, scores=1, seed=0):
    rng = np.random.default_rng(seed)
    x, coef = rng.normal(size=(n, d)) + 5.0, rng.normal(size=(scores, d + 1))
    return x, rng.integers(max(2, scores), size=n), rng.random(n) + 0.5, coef


def test_blocks_are_all_rows_about_the_centre(monkeypatch):
    monkeypatch.setattr(logistic, "FEWEST", 16)
    monkeypatch.setattr(logistic, "CELLS", 1)
    x = problem()[0]
    found = np.concatenate([z.copy() for _, z in logistic.blocks(x, x.mean(0))])
    np.testing.assert_array_equal(found, x - x.mean(0))
    backwards = np.concatenate([z.copy() for _, z in logistic.blocks(np.asfortranarray(x), x.mean(0))])
    np.testing.assert_array_equal(backwards, found)


@pytest.mark.parametrize("scores", [1, 3])
def test_gradient_and_second_derivatives_are_those_of_the_log_likelihood(scores, monkeypatch):
    x, y, w, coef = problem(scores=scores)
    monkeypatch.setattr(logistic, "FEWEST", 16)
    monkeypatch.setattr(logistic, "CELLS", 1)

    def sums(flat, second=None):
        return logistic.sums(x, y, w, flat.reshape(coef.shape), x.mean(0), second)

    at, steps = coef.ravel(), 1e-5 * np.eye(coef.size)
    slopes = [(sums(at + s)[1] - sums(at - s)[1]) / 2e-5 for s in steps]
    np.testing.assert_allclose(sums(at)[2].ravel(), slopes, atol=1e-6)
    bends = np.stack([(sums(at - s)[2] - sums(at + s)[2]).ravel() / 2e-5 for s in steps])
    np.testing.assert_allclose(sums(at, logistic.second_of)[3], bends, atol=1e-6)
    within = bends.reshape(scores, 4, scores, 4)[np.arange(scores), :, np.arange(scores)]
    np.testing.assert_allclose(sums(at, logistic.second_within)[3], within, atol=1e-4)


def test_a_label_far_behind_costs_what_it_is_behind():
    found = logistic.evaluate(np.array([[1.0], [1.0]]), np.array([0, 1]), np.array([[5000.0, 0.0]]))
    np.testing.assert_allclose(found.log_label, [-5000.0, 0.0])
    np.testing.assert_allclose(found.error, [[-1.0, 0.0]])


def test_a_step_that_repeats_half_of_the_last_one_is_twice_as_long():
    second, step = np.diag([1.0, 4.0]), np.array([1.0, -2.0])
    np.testing.assert_allclose(logistic.lengthened(step, 2 * step, second), 2 * step)
    np.testing.assert_array_equal(logistic.lengthened(step, np.zeros(2), second), step)  # the first step
    np.testing.assert_array_equal(logistic.lengthened(step, -step, second), step)  # back again
