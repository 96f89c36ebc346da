"""Logistic regressions of levels inside MixtureImputer: sums that add up, scikit-learn's solution, the penalty of largest evidence."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from unpooled.models.mixture_imputer import logistic
from unpooled.models.mixture_imputer.embedding import Embedding
from unpooled.models.mixture_imputer.logistic import Regression


def rows(n=300, strength=1.0, seed=0):
    """(predictors with a leading one, levels of three)."""
    rng = np.random.default_rng(seed)
    z = np.column_stack([np.ones(n), rng.normal(size=(n, 4))])
    eta = strength * z @ rng.normal(size=(5, 3))
    level = (eta + rng.gumbel(size=eta.shape)).argmax(1)
    return z, level


def fitted(z, level, rounds=40):
    zero = np.zeros((2, z.shape[1]))
    now = Regression(0, logistic.FIRST, zero, zero, zero, -np.inf, False)
    for _ in range(rounds):
        if now.settled:
            break
        now = logistic.moved(now, logistic.sums(now.coef, z, level, np.ones(len(z))))
    return now


@pytest.mark.parametrize("n", [2, 3, 7])
def test_contrasts_are_orthonormal_and_treat_no_level_apart(n):
    found = logistic.contrasts(n)
    np.testing.assert_allclose(found.T @ found, np.eye(n - 1), atol=1e-12)
    np.testing.assert_allclose(found.sum(0), 0, atol=1e-12)


def test_sums_of_parts_are_the_sums_of_all_rows():
    z, level = rows()
    coef = np.random.default_rng(1).normal(size=(2, 5))
    whole = logistic.sums(coef, z, level, np.ones(300))
    parts = [logistic.sums(coef, z[s], level[s], np.ones(len(z[s]))) for s in (slice(0, 90), slice(90, None))]
    for total, *some in zip(whole, *parts):
        np.testing.assert_allclose(total, some[0] + some[1], rtol=1e-10, atol=1e-10)


def test_it_is_scikit_learns_solution_for_its_penalty():
    z, level = rows()
    found = fitted(z, level)
    assert found.settled
    peer = LogisticRegression(C=1 / found.penalty, tol=1e-10, max_iter=1000).fit(z[:, 1:], level)
    ours = np.exp(logistic.log_probabilities(found.best, z))
    np.testing.assert_allclose(ours, peer.predict_proba(z[:, 1:]), atol=5e-3)  # its intercept has no penalty, ours 0.01


def test_levels_without_a_signal_get_a_strong_penalty():
    z, level = rows(strength=0.0)
    assert fitted(z, level).penalty > 30 * fitted(*rows(strength=1.0)).penalty


def test_overall_shares_come_with_the_first_sums():
    z, level = rows()
    zero = np.zeros((2, 5))
    first = Regression(0, 1.0, zero, zero, zero, -np.inf, False)
    share = logistic.margin(first, logistic.sums(zero, z, level, np.ones(300)))
    np.testing.assert_allclose(share, (np.bincount(level) + 0.5) / 301.5, rtol=1e-12)


def test_a_column_of_very_many_levels_has_no_regression():
    few, many = Embedding(["real", "category"], [0, 5]), Embedding(["real", "category"], [0, 400])
    assert logistic.columns_of(few) == [1]
    assert logistic.columns_of(many) == []
    assert logistic.begin(many) == ()
