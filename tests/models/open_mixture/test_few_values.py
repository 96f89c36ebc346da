"""OpenMixture on tables whose clusters have no spread: columns of a few values, constant and copied ones."""

import numpy as np
import pytest

import unpooled as up


def clients(make, sizes=(20, 8, 5, 3), seed=0):
    rng = np.random.default_rng(seed)
    return {f"site {i}": make(rng, n) for i, n in enumerate(sizes)}


def binary(rng, n):
    return rng.integers(0, 2, size=(n, 1)).astype(float)


def constant_and_copied(rng, n):
    x = np.exp(3 * rng.normal(size=(n, 1)))
    return np.column_stack([x, np.ones(n), x, rng.integers(0, 2, size=n)])


def far_from_zero(rng, n):
    return 2e4 + np.column_stack([rng.integers(0, 2, size=n), np.zeros(n), rng.random(n) < 0.02])


@pytest.mark.filterwarnings("ignore:.*same value in every row:unpooled.errors.DataWarning")
@pytest.mark.parametrize("make", [binary, constant_and_copied, far_from_zero])
@pytest.mark.parametrize("sizes", [(20, 8, 5, 3), (8, 3, 3, 1, 1, 1), (60, 60, 60)])
def test_rows_without_spread_are_fitted(make, sizes):
    data = clients(make, sizes)
    model = up.OpenMixture(random_state=0).fit(data)
    assert model.n_components_ >= 1
    assert sum(model.certainty_.values()) == pytest.approx(1)
    assert all(np.isfinite(model.score_samples(x)).all() for x in data.values())


def test_two_values_are_two_clusters():
    data = clients(binary, (60, 60, 60))
    model = up.OpenMixture(random_state=0).fit(data)
    assert model.n_components_ == 2
    for x in data.values():
        labels = model.predict(x)
        assert len({(label, value) for label, value in zip(labels, x[:, 0])}) == 2
