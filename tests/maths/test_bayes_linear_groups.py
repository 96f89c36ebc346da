"""Random offsets of groups of rows, compared with a dense Gaussian process."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from unpooled import tree
from unpooled.maths import bayes_linear as bl

NOISE, PRIOR, RATIO, GROUPS = np.array([0.2, 0.1]), np.array([0.7, 2.0]), 1.5, 12


@pytest.fixture(name="rows", scope="module")
def rows_():
    rng = np.random.default_rng(0)
    group = rng.integers(-1, GROUPS - 1, size=90)  # -1: rows without a group; the last group has no rows
    z = rng.normal(size=(90, 5))
    offset = np.vstack([0.6 * rng.normal(size=(GROUPS, 2)), np.zeros((1, 2))])
    return z, z @ rng.normal(size=(5, 2)) + offset[group] + 0.3 * rng.normal(size=(90, 2)), np.ones(90), group


def dense(z, group, other_z, other_group, j):
    """The prior covariance of means, over the noise of output j where rows share a group."""
    same = (group[:, None] == other_group) & (group[:, None] >= 0)
    return PRIOR[j] * z @ other_z.T + NOISE[j] * RATIO * same


def fitted(rows, some=slice(None), intercept=False):
    z, y, w, group = (a[some] for a in rows)
    stats = bl.statistics(z, y, w, group, GROUPS)
    return bl.posterior(stats, noise=NOISE, prior=PRIOR, ratio=RATIO, intercept=intercept)


def test_the_posterior_is_that_of_the_dense_process(rows):
    z, y, _, group = rows
    post = fitted(rows)
    new, where = np.random.default_rng(1).normal(size=(6, 5)), np.array([0, 0, 3, 10, -1, GROUPS - 1])
    mean, variance = bl.predict(post, new, where)
    for j in range(2):
        inner = dense(z, group, z, group, j) + NOISE[j] * np.eye(90)
        across = dense(new, where, z, group, j)
        own = PRIOR[j] * (new**2).sum(1) + NOISE[j] * (1 + RATIO)  # a group never seen has an offset too
        assert_allclose(mean[:, j], across @ np.linalg.solve(inner, y[:, j]), rtol=1e-9)
        assert_allclose(variance[:, j], own - (across * np.linalg.solve(inner, across.T).T).sum(1), rtol=1e-9)
        assert_allclose(post.log_evidence[j], multivariate_normal(np.zeros(90), inner).logpdf(y[:, j]), rtol=1e-10)


def test_with_an_intercept_it_is_the_dense_process_whose_mean_is_estimated(rows):
    z, y, w, group = rows
    rows = z, y + 5, w, group
    post = fitted(rows, intercept=True)
    new, where = np.random.default_rng(1).normal(size=(6, 5)), np.array([0, 0, 3, 10, -1, GROUPS - 1])
    mean, variance = bl.predict(post, new, where)
    for j in range(2):
        inner = dense(z, group, z, group, j) + NOISE[j] * np.eye(90)
        across = dense(new, where, z, group, j)
        own = PRIOR[j] * (new**2).sum(1) + NOISE[j] * (1 + RATIO)
        solved = np.linalg.solve(inner, np.column_stack([rows[1][:, j], np.ones(90), across.T]))
        precision = solved[:, 1].sum()
        level = solved[:, 0].sum() / precision
        free = 1 - across @ solved[:, 1]  # what a row does not have from rows fitted it has from the mean
        assert_allclose(mean[:, j], across @ solved[:, 0] + free * level, rtol=1e-9)
        expected = own - (across * solved[:, 2:].T).sum(1) + free**2 / precision
        assert_allclose(variance[:, j], expected, rtol=1e-9)
        density = multivariate_normal(np.full(90, level), inner).logpdf(rows[1][:, j])
        assert_allclose(post.log_evidence[j], density + 0.5 * np.log(2 * np.pi / precision), rtol=1e-10)


@pytest.mark.parametrize("standardize", [False, True])
def test_with_an_intercept_the_learned_ratio_is_a_maximum_too(rows, standardize):
    z, y, w, group = rows
    stats = bl.statistics(z * [1, 10, 1, 0.1, 1], y - 7, w, group, GROUPS)
    best = bl.posterior(stats, intercept=True, standardize=standardize)
    for ratio in best.group_ratio * np.array([0.5, 0.99, 1.01, 2.0]):
        other = bl.posterior(stats, intercept=True, standardize=standardize, ratio=ratio)
        assert other.log_evidence.sum() < best.log_evidence.sum()


def test_the_learned_ratio_is_a_maximum_and_noise_without_groups_has_none(rows):
    z, y, w, group = rows
    stats = bl.statistics(z, y, w, group, GROUPS)
    best = bl.posterior(stats)
    assert best.group_ratio > 0.5
    for ratio in best.group_ratio * np.array([0.5, 0.99, 1.01, 2.0]):
        assert bl.posterior(stats, ratio=ratio).log_evidence.sum() < best.log_evidence.sum()
    shuffled = np.random.default_rng(2).permutation(group)
    assert bl.posterior(bl.statistics(z, y, w, shuffled, GROUPS)).group_ratio < 0.2 * best.group_ratio


def test_sums_add_and_stack(rows):
    z, y, w, group = rows
    whole = bl.statistics(z, y, w, group, GROUPS)
    parts = [bl.statistics(z[i::3], y[i::3], w[i::3], group[i::3], GROUPS) for i in range(3)]
    for a, b in zip(whole, tree.add(parts[0], tree.add(parts[1], parts[2]))):
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    twice = bl.statistics(*(np.stack([a, a[::-1]]) for a in (z, y, w, group)), GROUPS)
    for a, b in zip(whole, twice):
        assert_allclose(b, np.stack([a, a]), rtol=1e-12, atol=1e-12)


def test_slopes_are_those_of_the_evidence(rows):
    z, y, w, group = rows
    post = bl.posterior(bl.statistics(z, y, w, group, GROUPS))
    slope = bl.cotangent(bl.slopes(post), *bl.apart(post, z, y, group), w)
    for i, j in ((0, 0), (5, 3), (41, 2)):
        step = np.zeros_like(z)
        step[i, j] = 1e-5
        up, down = (bl.posterior(bl.statistics(z + s * step, y, w, group, GROUPS)).log_evidence.sum() for s in (1, -1))
        assert_allclose(slope[i, j], (up - down) / 2e-5, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("intercept", [False, True])
def test_rows_left_out_are_those_of_a_fit_without_them(rows, intercept):
    z, y, _, group = rows
    post = fitted(rows, intercept=intercept)
    mean, variance = bl.left_out(post, z, y, group)
    for i in (0, 17, int(np.flatnonzero(group < 0)[0])):
        expected, spread = bl.predict(fitted(rows, np.arange(90) != i, intercept), z[i : i + 1], group[i : i + 1])
        assert_allclose(mean[i], expected[0], rtol=1e-8)
        assert_allclose(variance[i], spread[0], rtol=1e-8)
    out = np.arange(90) < 30
    mean, variance = bl.left_out_together(post, z[out], y[out], group[out])
    expected, spread = bl.predict(fitted(rows, ~out, intercept), z[out], group[out])
    assert_allclose(mean, expected, rtol=1e-8, atol=1e-10)
    assert_allclose(variance, spread, rtol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
def test_draws_have_the_predicted_moments(rows, intercept):
    post = fitted(rows, slice(0, 9), intercept)  # few rows: much is unsure
    new, where = np.random.default_rng(1).normal(size=(5, 5)), np.array([*rows[3][:3], -1, GROUPS - 1])
    draws = bl.draw(post, new, 40_000, np.random.default_rng(0), where)
    mean, variance = bl.predict(post, new, where)
    assert_allclose(draws.mean(-1), mean, atol=5 * np.sqrt(variance.max() / 40_000))
    assert_allclose(draws.var(-1), variance, rtol=0.05)


def test_draws_have_the_predicted_moments_and_groups_share_their_offset(rows):
    post = fitted(rows)
    new, where = np.zeros((3, 5)), np.array([GROUPS - 1, GROUPS - 1, -1])  # no features, groups without rows
    draws = bl.draw(post, new, 40_000, np.random.default_rng(0), where)
    mean, variance = bl.predict(post, new, where)
    assert_allclose(draws.mean(-1), mean, atol=0.02)
    assert_allclose(draws.var(-1), variance, rtol=0.05)
    for j in range(2):
        together = np.cov(draws[:, j])
        assert_allclose(together[0, 1], RATIO * NOISE[j], rtol=0.05)
        assert abs(together[0, 2]) < 0.01
