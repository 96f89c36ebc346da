"""The truth that comes with synthetic data is true: separation, conditioning, moments and missing shares."""

import numpy as np
import pytest

from unpooled.data import synthetic
from unpooled.errors import BadParameter

TYPES = ("full", "tied", "diag", "spherical")


def pooled(truth):
    return np.concatenate(list(truth.clients.values())), np.concatenate(list(truth.labels.values()))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("separation", [0.5, 3.0, 10.0])
def test_the_nearest_components_are_as_far_apart_as_asked(kind, separation):
    truth = synthetic.mixture(50, 6, 3, separation=separation, covariance_type=kind, random_state=1)
    full = synthetic.as_full(truth.covariances, kind, 6, 3)
    assert synthetic.separation_of(truth.means, full).min() == pytest.approx(separation)


def test_separation_is_counted_in_standard_deviations():
    means = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    covariance = np.diag([4.0, 9.0])
    distance = synthetic.separation_of(means, np.stack([covariance] * 3))
    assert distance[0, 1] == pytest.approx(3.0)  # 6 along a standard deviation of 2
    assert distance[0, 2] == pytest.approx(2.0)  # 6 along one of 3
    np.testing.assert_allclose(distance, distance.T)


@pytest.mark.parametrize("kind", ["full", "tied", "diag"])
def test_conditioning_is_that_of_every_component(kind):
    truth = synthetic.mixture(50, 4, 5, conditioning=100.0, covariance_type=kind, random_state=0)
    full = synthetic.as_full(truth.covariances, kind, 4, 5)
    np.testing.assert_allclose(np.linalg.cond(full), 100.0)
    np.testing.assert_allclose(full, np.swapaxes(full, -1, -2), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("kind", "shape"), [("full", (3, 4, 4)), ("tied", (4, 4)), ("diag", (3, 4)), ("spherical", (3,))]
)
def test_rows_have_the_moments_of_the_truth(kind, shape):
    truth = synthetic.mixture(60_000, 3, 4, covariance_type=kind, clients=7, random_state=3)
    x, labels = pooled(truth)
    assert truth.covariances.shape == shape
    full = synthetic.as_full(truth.covariances, kind, 3, 4)
    np.testing.assert_allclose(np.bincount(labels) / len(x), truth.weights, atol=0.01)
    for k in range(3):
        rows = x[labels == k]
        error = np.sqrt(np.diag(full[k]) / len(rows))
        assert (np.abs(rows.mean(0) - truth.means[k]) < 5 * error).all()
        np.testing.assert_allclose(np.cov(rows.T), full[k], atol=0.08 * np.diag(full[k]).max())


def test_clients_hold_every_row_once_and_alpha_skews_them():
    even = synthetic.mixture(1000, 4, 2, clients=10, random_state=0)
    skewed = synthetic.mixture(1000, 4, 2, clients=10, alpha=0.05, random_state=0)
    for truth in (even, skewed):
        assert list(truth.clients) == [f"client-{i}" for i in range(10)]
        assert all(len(truth.labels[name]) == len(x) > 0 for name, x in truth.clients.items())
        assert len(np.unique(pooled(truth)[0], axis=0)) == 1000
    kinds = [np.mean([len(set(y.tolist())) for y in truth.labels.values()]) for truth in (even, skewed)]
    assert kinds[0] == 4
    assert kinds[1] < 3
    again = synthetic.mixture(1000, 4, 2, clients=10, random_state=0)
    np.testing.assert_array_equal(pooled(again)[0], pooled(even)[0])


def test_missing_share_of_a_mixture():
    x, _ = pooled(synthetic.mixture(20_000, 3, 5, missing=0.2, clients=3, random_state=0))
    assert np.isnan(x).mean() == pytest.approx(0.2, abs=0.01)


def test_missing_by_chance_leaves_every_row_a_value():
    x = np.arange(30_000.0).reshape(10_000, 3)
    out = synthetic.missing(x, 0.6, rng=0)
    gone = np.isnan(out)
    assert not gone.all(1).any()
    assert not np.isnan(x).any()  # a copy
    np.testing.assert_array_equal(out[~gone], x[~gone])
    assert gone.mean() == pytest.approx(0.6 - 0.6**3 / 3, abs=0.01)


def test_missing_in_patterns():
    out = synthetic.missing(np.ones((20_000, 20)), 0.2, patterns=50, rng=0)
    gone = np.isnan(out)
    masks, count = np.unique(gone, axis=0, return_counts=True)
    assert len(masks) == 50
    assert count.min() > 200
    assert gone.mean() == pytest.approx(0.2, abs=0.01)
    fractional = np.isnan(synthetic.missing(np.ones((20_000, 7)), 0.25, patterns=20, rng=0))
    assert len(np.unique(fractional, axis=0)) == 20
    assert fractional.mean() == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: synthetic.mixture(10, covariance_type="ful"), "did you mean 'full'"),
        (lambda: synthetic.mixture(10, separation=-1), "separation=-1"),
        (lambda: synthetic.mixture(10, conditioning=0.5), "conditioning=0.5"),
        (lambda: synthetic.missing(np.ones((3, 2)), 1.0), "share=1.0"),
        (lambda: synthetic.missing(np.ones((3, 2)), 0.5, patterns=9), "patterns=9 are too many"),
    ],
)
def test_impossible_wishes(call, message):
    with pytest.raises(BadParameter, match=message):
        call()
