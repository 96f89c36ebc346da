"""The mixture of one small table: BIC finds the number, and rows too few or too alike do no harm."""

import numpy as np
import pytest

from unpooled.maths import local_mixture


@pytest.mark.parametrize("k", [1, 3, 5])
def test_number_of_components_is_found(k):
    rng = np.random.default_rng(k)
    centres = 9 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 2]])[:k]
    x = centres[rng.integers(k, size=200)] + rng.normal(size=(200, 2))
    found = local_mixture.fit(x, np.ones(200), rng, range(1, 9))
    assert len(found.params.weights) == k


@pytest.mark.parametrize(
    "x",
    [np.zeros((1, 3)), np.ones((6, 3)), np.repeat(np.eye(3), 2, axis=0), np.c_[np.arange(8.0), np.zeros(8)]],
    ids=["one row", "equal rows", "duplicates", "a constant column"],
)
def test_few_or_equal_rows_give_a_finite_mixture(x):
    found = local_mixture.fit(x, np.ones(len(x)), np.random.default_rng(0), range(1, 5))
    r = local_mixture.responsibilities(found, x)
    np.testing.assert_allclose(r.sum(1), 1.0)
    n, mean, scatter = local_mixture.summarise(x, r)
    assert n.sum() == pytest.approx(len(x))
    assert np.isfinite(mean).all()
    assert np.isfinite(scatter).all()


def test_summary_is_that_of_the_rows():
    rng = np.random.default_rng(1)
    x, r = rng.normal(size=(30, 4)), rng.dirichlet(np.ones(3), 30)
    n, mean, scatter = local_mixture.summarise(x, r)
    for k in range(3):
        np.testing.assert_allclose(mean[k], np.average(x, axis=0, weights=r[:, k]))
        np.testing.assert_allclose(scatter[k], n[k] * np.cov(x.T, aweights=r[:, k], ddof=0), atol=1e-10)
