"""The sum of kernels: its blocks, its points, and the scales of the blocks by evidence."""

import numpy as np
import pytest

from unpooled.maths import bayes_linear, sum_of_kernels
from unpooled.maths.sum_of_kernels import Parts


@pytest.fixture(name="rng")
def rng_():
    return np.random.default_rng(0)


def test_nystroem_features_have_the_kernel_as_inner_products_at_the_points(rng):
    points, length = rng.normal(size=(12, 3)), np.array([1.0, 2.0, 0.5])
    z = sum_of_kernels.nystroem(length, points, points)
    np.testing.assert_allclose(z @ z.T, sum_of_kernels.gaussian(length, points, points), atol=1e-5)


def test_points_explain_the_rows_better_than_as_many_random_ones(rng):
    rows, length = rng.normal(size=(400, 4)), np.full(4, 1.5)
    chosen, drawn = sum_of_kernels.choose_points(length, rows, 60, rng), rows[:60]
    left = [1 - (sum_of_kernels.nystroem(length, p, rows) ** 2).sum(1) for p in (chosen, drawn)]
    assert len(chosen) == 60
    assert left[0].mean() < 0.9 * left[1].mean()


def test_no_point_is_chosen_twice(rng):
    rows = np.repeat(rng.normal(size=(5, 2)), 4, axis=0)
    assert len(sum_of_kernels.choose_points(np.ones(2), rows, 12, rng)) == 5


def test_stacked_rows_have_the_features_of_single_ones(rng):
    points = rng.normal(size=(7, 3))
    parts = Parts(np.array([0.0, 2.0]), np.array([0.1, -0.3]), np.array([0.4, 0.5]), points, points[:2])
    x, weights = rng.normal(size=(4, 9, 3)), np.array([1.0, 0.5, 2.0, 0.3])
    stacked = sum_of_kernels.features(np.zeros(3), weights, parts, x)
    assert stacked.shape == (4, 9, 3 + 2 + 7 + 2)
    assert len(sum_of_kernels.blocks(3, parts)) == 14
    np.testing.assert_allclose(stacked[2], sum_of_kernels.features(np.zeros(3), weights, parts, x[2]), rtol=1e-12)


def evidence(z, y, scale, block):
    return bayes_linear.posterior(bayes_linear.statistics(z * scale[block], y, np.ones(len(z)))).log_evidence.sum()


def test_block_scales_maximise_the_evidence(rng):
    z, block = rng.normal(size=(300, 12)), np.repeat([0, 1, 2], 4)
    y = z[:, :4] @ rng.normal(size=(4, 2)) + 0.2 * z[:, 4:8] @ rng.normal(size=(4, 2)) + 0.5 * rng.normal(size=(300, 2))
    found = bayes_linear.block_scales(bayes_linear.statistics(z, y, np.ones(300)), block)
    best = evidence(z, y, found, block)
    for b in range(3):
        for factor in (0.8, 1.25):
            other = found.copy()
            other[b] *= factor
            assert evidence(z, y, other, block) < best + 0.05
    assert found[2] < 0.1 * found[0]  # the last block says nothing about y


def test_scaled_sums_are_those_of_scaled_features(rng):
    z, y, w, scale = rng.normal(size=(40, 3)), rng.normal(size=(40, 1)), rng.random(40), np.array([2.0, 0.1, 1.0])
    group = rng.integers(4, size=40)
    sums = bayes_linear.statistics(z, y, w, group, 4)
    for ours, theirs in zip(bayes_linear.scaled(sums, scale), bayes_linear.statistics(z * scale, y, w, group, 4)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
