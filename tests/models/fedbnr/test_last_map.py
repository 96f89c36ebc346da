"""FedBNR with default parameters: a sum of kernels in the last layer, within a budget of bytes."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

import unpooled as up
from unpooled.maths import calibration
from unpooled.maths.feature_maps import features, start
from unpooled.models.fedbnr.budget import (
    MAX_FREQUENCIES,
    MIN_FREQUENCIES,
    budget,
    bytes_left,
    features_for,
    frequencies_for,
    frequencies_to_learn_with,
    rounds_to_learn_in,
)
from unpooled.models.fedbnr.last_map import HINGES, MIN_POINTS
from unpooled.models.fedbnr.marginals import N_BINS
from unpooled.models.regression import BINS

SPEC = {"map": "additive", "m": 12, "spectrum": "rbf", "frequencies": "fixed"}


def additive(seed, n=600):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, 5))
    return x, np.sin(3 * x[:, 0]) + x[:, 1] ** 2 + np.abs(x[:, 2]) + 0.2 * rng.normal(size=n)


def test_an_additive_map_is_a_sum_of_functions_of_single_columns():
    kernel = start(SPEC, 3, np.random.default_rng(0))
    a, b, zero = np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 2.0, 0.0]]), np.zeros((1, 3))
    together = features(SPEC, kernel, a + b) - features(SPEC, kernel, zero)
    apart = features(SPEC, kernel, a) + features(SPEC, kernel, b) - 2 * features(SPEC, kernel, zero)
    np.testing.assert_allclose(together, apart, atol=1e-12)


def test_frequencies_fit_into_the_budget():
    for n_answers in (10, 100, 1000):
        m = frequencies_for(1.5e6, n_answers)
        sent = 8 * n_answers * (2 * m) * (2 * m + 1) / 2
        assert m in (MIN_FREQUENCIES, MAX_FREQUENCIES) or 0.7 * 1.5e6 < sent < 1.05 * 1.5e6
    assert budget(10_000, 5, 10) > 4 * budget(2_000, 5, 10) == 4 * budget(10, 5, 10)
    k = features_for(1.5e6, 10)
    assert 0.9 * 1.5e6 < 8 * 10 * k * (k + 1) / 2 < 1.05 * 1.5e6


def sent(rows, d, n_clients):
    """Bytes that all clients send in all, at most."""
    size = (rows, d, n_clients)
    k, last = 2 * frequencies_to_learn_with(*size), features_for(bytes_left(*size), n_clients)
    last = max(last, d + int(HINGES * last) + MIN_POINTS)
    learning = rounds_to_learn_in(*size) * (k * (k + 5) / 2 + d + 10)  # statistics and a gradient per round
    columns = d * (6 + BINS + 2 * N_BINS) + d * (d + 1) / 2
    return 8 * n_clients * (learning + last * (last + 5) / 2 + columns + calibration.BINS)


@pytest.mark.parametrize("n_clients", [2, 5, 10, 20, 40, 60])
def test_any_small_table_fits_into_two_megabytes(n_clients):
    for d in range(1, min(100, 400 // n_clients) + 1):
        assert sent(10_000 / d, d, n_clients) < 2e6


@pytest.mark.parametrize(("n", "d", "n_clients"), [(600, 10, 10), (240, 10, 40)])
def test_a_small_table_costs_at_most_two_megabytes(n, d, n_clients):
    x, y = make_friedman1(n, n_features=d, noise=1.0, random_state=1)
    fed = up.federate(x, y, by=np.arange(n) % n_clients)
    model = up.FedBNR(random_state=0).fit(fed)
    assert sum(row.bytes_up for row in fed.journal.exchanges) < min(2e6, 1.05 * sent(n, d, n_clients))
    assert model.n_sums_ == sum(row.kind == "sum" for row in fed.journal.exchanges)


def test_splines_and_a_joint_kernel_are_weighed_by_the_evidence():
    x, y = additive(2, 900)
    model = up.FedBNR(random_state=0).fit(x[:600], y[:600], by=np.arange(600) % 10)
    assert model.features_ == "sum of kernels"
    assert np.sqrt(np.mean((model.predict(x[600:]) - y[600:]) ** 2)) < 0.28  # the noise is 0.2
    x, y = make_friedman1(900, noise=1.0, random_state=2)
    model = up.FedBNR(random_state=0).fit(x[:600], y[:600], by=np.arange(600) % 10)
    assert np.sqrt(np.mean((model.predict(x[600:]) - y[600:]) ** 2)) < 1.3  # the noise is 1


def test_all_rows_recalibrate_where_only_length_scales_were_learned():
    x, y = additive(4, 300)
    model = up.FedBNR(random_state=0, max_iter=2).fit(x, y, by=np.arange(300) % 3)
    assert model.histogram_.sum() == 300


def test_the_map_is_saved_and_the_same_for_any_split(tmp_path):
    x, y = additive(3)
    model = up.FedBNR(random_state=0).fit(x, y, by=np.arange(len(y)) % 10)
    other = up.FedBNR(random_state=0).fit(x, y, by=np.repeat(np.arange(10), len(y) // 10))
    np.testing.assert_allclose(other.predict(x), model.predict(x), rtol=1e-4, atol=1e-4)
    model.save(tmp_path)
    np.testing.assert_array_equal(up.load(tmp_path).predict(x), model.predict(x))
