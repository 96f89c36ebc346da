"""Steps of L-BFGS reach the minimum of a quadratic function, and memory keeps what says something of the curvature."""

import numpy as np

from unpooled.maths import quasi_newton

RNG = np.random.default_rng(3)
ROOT = RNG.normal(size=(6, 6))
SECOND = ROOT @ ROOT.T + np.eye(6)
TARGET = RNG.normal(size=6)


def minimised(rounds, precondition):
    at = np.zeros(6)
    steps = changes = np.zeros((0, 6))
    for _ in range(rounds):
        gradient = SECOND @ (TARGET - at)
        step = quasi_newton.next_step(gradient, steps, changes, precondition)
        step *= (step @ gradient) / (step @ SECOND @ step)
        steps, changes = quasi_newton.remembered(steps, changes, step, SECOND @ step)
        at = at + step
    return at


def test_a_quadratic_function_is_minimised_in_as_many_steps_as_it_has_dimensions():
    found = minimised(6, lambda right: right)
    np.testing.assert_allclose(found, TARGET, rtol=1e-8)
    assert np.abs(minimised(3, lambda right: right) - TARGET).max() > 1e-4


def test_the_right_preconditioner_takes_one_step():
    np.testing.assert_allclose(minimised(1, lambda right: np.linalg.solve(SECOND, right)), TARGET, rtol=1e-10)


def test_steps_without_curvature_are_not_kept_and_old_ones_are_forgotten():
    none = np.zeros((0, 6))
    steps, _ = quasi_newton.remembered(none, none, np.ones(6), -np.ones(6))
    assert len(steps) == 0
    steps = changes = none
    for i in range(quasi_newton.MEMORY + 3):
        steps, changes = quasi_newton.remembered(steps, changes, np.full(6, i + 1.0), np.full(6, i + 1.0))
    assert len(steps) == len(changes) == quasi_newton.MEMORY
    assert steps[0, 0] == 4.0


def test_a_step_that_is_too_long_is_shortened_to_the_minimum_of_a_parabola():
    # x -> (x - 0.4)^2 from 0 to 1: falls by .8 by its slope, and is 1 higher than that
    assert quasi_newton.shortened(0.8, 0.36 - 0.16 + 0.8) == 0.4
    assert quasi_newton.shortened(0.8, np.inf) == quasi_newton.SHORTEST
    assert quasi_newton.shortened(0.8, 0.1) == quasi_newton.LONGEST
