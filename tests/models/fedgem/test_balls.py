"""FedGEM's geometry: no loss inside a ball, common points lie in both balls, no client twice in a super-cluster."""

import numpy as np
import pytest

from unpooled.models.fedgem import balls


def expected_loglik(mean, x, r):
    return -0.5 * (r * ((x - mean) ** 2).sum(1)).sum()


def test_at_the_exact_radius_the_likelihood_is_that_before_the_step():
    rng = np.random.default_rng(0)
    x, r, before = rng.normal(size=(50, 3)), rng.uniform(size=50), rng.normal(size=3)
    centre = r @ x / r.sum()
    radius = balls.exact_radius(centre[None], before[None])[0]
    floor = expected_loglik(before, x, r)
    directions = rng.normal(size=(100, 3))
    for u in directions / np.linalg.norm(directions, axis=1, keepdims=True):
        assert expected_loglik(centre + radius * u, x, r) == pytest.approx(floor)
        assert expected_loglik(centre + 1.01 * radius * u, x, r) < floor


def test_conservative_radius_is_the_smaller_one():
    rng = np.random.default_rng(1)
    centre, before, spread = rng.normal(size=(20, 4)), rng.normal(size=(20, 4)), rng.uniform(0.1, 5, 20)
    small, exact = balls.conservative_radius(centre, before, spread), balls.exact_radius(centre, before)
    assert np.all(small > 0)
    assert np.all(small < exact)
    np.testing.assert_allclose(balls.conservative_radius(centre, before, np.zeros(20)), exact)


def test_overlaps_are_all_overlapping_pairs_nearest_first():
    rng = np.random.default_rng(2)
    m = 3 * balls.CHUNK // 2
    centre, radius, owner = rng.normal(size=(m, 3)), rng.uniform(0, 0.2, m), rng.integers(20, size=m)
    i, j, apart = balls.overlaps(centre, radius, owner)
    table = np.linalg.norm(centre[:, None] - centre, axis=-1)
    want = np.triu((table <= radius[:, None] + radius) & (owner[:, None] != owner), 1)
    assert set(zip(i.tolist(), j.tolist())) == set(zip(*(a.tolist() for a in np.nonzero(want))))
    assert np.all(np.diff(apart) >= 0)
    np.testing.assert_allclose(apart, table[i, j], atol=1e-7)


def test_common_points_lie_in_both_balls_nearest_to_the_midpoint():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 200, 3))
    apart = np.linalg.norm(a - b, axis=1)
    ra = rng.uniform(0, 1, 200) * apart
    rb = np.maximum(apart - ra, 0) + rng.uniform(0, 0.5, 200)
    point = balls.common_points(a, ra, b, rb, apart)
    assert np.all(np.linalg.norm(point - a, axis=1) <= ra + 1e-9)
    assert np.all(np.linalg.norm(point - b, axis=1) <= rb + 1e-9)
    free = (ra >= apart / 2) & (rb >= apart / 2)
    np.testing.assert_allclose(point[free], (a + b)[free] / 2)


def test_no_super_cluster_holds_two_components_of_a_client():
    owner = np.array([0, 1, 0, 2])
    # 0-1 joins, 1-2 would bring client 0 twice
    label = balls.super_clusters(np.array([0, 1, 2]), np.array([1, 2, 3]), owner)
    assert label[0] == label[1] != label[2] == label[3]
