"""What looks cost: exact, additive, and equal to Google's accountant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from unpooled.errors import BadParameter
from unpooled.privacy.accountant import Accountant, BudgetSpent, delta_of, epsilon_of, mu_of


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.5), (1.0, 1.0), (1.0, 4.0), (3.0, 2.0)])
def test_delta_is_the_hockey_stick_divergence_of_two_gaussians(mu, epsilon):
    excess = lambda x: max(norm.pdf(x, mu) - np.exp(epsilon) * norm.pdf(x), 0.0)  # noqa: E731
    threshold = epsilon / mu + mu / 2
    by_integration, _ = quad(excess, threshold, threshold + 40, limit=200)
    assert delta_of(mu, epsilon) == pytest.approx(by_integration, rel=1e-6)


@given(st.floats(0.01, 8), st.floats(-12, -1))
def test_mu_and_epsilon_are_inverse(epsilon, log_delta):
    delta = 10.0**log_delta
    assert epsilon_of(mu_of(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-8)


@given(st.floats(0.01, 20), st.floats(1e-12, 0.1), st.floats(1.001, 2))
def test_more_looks_cost_more(mu, delta, factor):
    assert epsilon_of(mu * factor, delta) >= epsilon_of(mu, delta)


def test_google_agrees():
    accounting = pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    rng = np.random.default_rng(0)
    for _ in range(8):
        mus, delta = 10.0 ** rng.uniform(-1.5, 0, size=rng.integers(1, 6)), 10.0 ** rng.uniform(-8, -3)
        theirs = accounting.pld.PLDAccountant()
        for mu in mus:
            theirs.compose(accounting.GaussianDpEvent(1 / mu))
        ours = epsilon_of(float(np.sqrt((mus**2).sum())), delta)
        assert ours == pytest.approx(theirs.get_epsilon(delta), abs=1e-4)


def test_a_budget_can_be_spent_to_the_end_and_no_further():
    budget = Accountant(epsilon=1.0, delta=1e-6)
    for _ in range(10):
        budget.charge(budget.mu2_total / 10)
    assert budget.spent.epsilon == pytest.approx(1.0, abs=1e-6)
    assert budget.spent.looks == 10
    with pytest.raises(BudgetSpent, match=r"would bring epsilon from 1 to .* and 1 is allowed: ask for less"):
        budget.charge(1e-4)
    assert budget.spent.looks == 10


@pytest.mark.parametrize("epsilon", [0, -1, float("inf"), float("nan"), "1", None])
def test_an_epsilon_that_allows_nothing_or_everything_is_refused(epsilon):
    with pytest.raises(BadParameter, match=r"epsilon=.* must be above 0 and finite"):
        Accountant(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0, 1, -0.1, float("nan"), "small"])
def test_a_delta_that_is_none_is_refused(delta):
    with pytest.raises(BadParameter, match=r"delta=.* must be above 0"):
        Accountant(1.0, delta)


@pytest.mark.parametrize("mu2", [0, -1, float("inf"), float("nan")])
def test_a_look_must_cost_something(mu2):
    with pytest.raises(BadParameter, match="it is what a look costs"):
        Accountant(1.0, 1e-6).charge(mu2)
