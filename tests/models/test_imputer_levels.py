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


def begun(p, groups=None):
    """A regression of three levels on p predictors at coefficients 0; one penalty for all but the intercept unless groups are given."""
    groups = np.minimum(np.arange(p), 1) if groups is None else groups
    penalty = np.append(logistic.OF_INTERCEPT, np.full(groups.max(), logistic.FIRST))
    zero = np.zeros((2, p))
    return Regression(0, groups, penalty, zero, zero, zero, -np.inf, False)


def fitted(z, level, rounds=40, groups=None):
    now = begun(z.shape[1], groups)
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
    peer = LogisticRegression(C=1 / found.penalty[1], tol=1e-10, max_iter=1000).fit(z[:, 1:], level)
    ours = np.exp(logistic.log_probabilities(found.best, z))
    np.testing.assert_allclose(ours, peer.predict_proba(z[:, 1:]), atol=5e-3)  # its intercept has no penalty, ours 0.01


def test_levels_without_a_signal_get_a_strong_penalty():
    z, level = rows(strength=0.0)
    assert fitted(z, level).penalty[1] > 30 * fitted(*rows(strength=1.0)).penalty[1]


def test_a_column_without_a_signal_has_a_strong_penalty_of_its_own():
    z, level = rows()
    noise = np.random.default_rng(5).normal(size=(300, 3))
    groups = np.array([0, 1, 2, 3, 4, 5, 5, 5])
    found = fitted(np.column_stack([z, noise]), level, groups=groups)
    assert found.penalty[5] > 30 * found.penalty[1:5].max()
    assert np.abs(found.best[:, 5:]).max() < 0.2 * np.abs(found.best[:, 1:5]).max()


def test_every_column_and_every_square_is_a_group():
    embedding = Embedding(["real", "category", "binary", "real"], [0, 3, 2, 0])
    each = logistic.groups_of(embedding, 2, logistic.Variant(True, True))
    np.testing.assert_array_equal(each, [0, 1, 2, 2, 2, 3, 4, 5])
    np.testing.assert_array_equal(logistic.groups_of(embedding, 2, logistic.Variant(False, False)), [0, 1, 1, 1, 1, 1])


def test_a_column_of_very_many_levels_has_no_regression():
    few, many = Embedding(["real", "category"], [0, 5]), Embedding(["real", "category"], [0, 400])
    assert logistic.columns_of(few) == [1]
    assert logistic.columns_of(many) == []
    assert logistic.begin(many) == ()
