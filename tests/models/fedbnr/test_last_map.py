"""FedBNR with default parameters: a sum of kernels in the last layer, within a budget of bytes."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

import unpooled as up
from unpooled.maths import bayes_linear, calibration
from unpooled.maths.feature_maps import features, start
from unpooled.models.fedbnr.budget import (
    MAX_FREQUENCIES,
    MIN_FREQUENCIES,
    Size,
    budget,
    bytes_left,
    features_for,
    frequencies_for,
    frequencies_to_learn_with,
    n_bins,
    rounds_to_learn_in,
    thinning,
)
from unpooled.models.fedbnr.last_map import HINGES, MIN_POINTS
from unpooled.models.regression import BINS, sum_statistics

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
        assert m in (MIN_FREQUENCIES, MAX_FREQUENCIES) or 0.7 * 1.5e6 < n_answers * answer(2 * m) < 1.5e6
    assert budget(Size(10_000, 5, 10)) > 4 * budget(Size(2_000, 5, 10)) == 4 * budget(Size(10, 5, 10))
    assert 0.9 * 1.5e6 < 20 * answer(features_for(1.5e6, 20)) < 1.5e6


def answer(k, number=4):
    """Bytes of the statistics of k features: the Gram matrix in single precision, all else in double."""
    return number * k * (k + 1) / 2 + 8 * (2 * k + 3)


def sent(rows, d, n_clients):
    """Bytes that all clients send in all, at most."""
    size = Size(rows, d, n_clients)
    k, last = 2 * frequencies_to_learn_with(size), features_for(bytes_left(size), n_clients)
    last = max(last, d + int(HINGES * last) + MIN_POINTS)
    learning = rounds_to_learn_in(size) * (answer(k, 8) + 8 * (d + 5))  # statistics and a gradient per round
    columns = 8 * (3 * d + 4) + d * (4 * BINS / thinning(size) + 4 + 12 * n_bins(size)) + 8 * d * (d + 1) / 2
    return n_clients * (learning + answer(last) + columns + 4 * calibration.BINS)


@pytest.mark.parametrize("n_clients", [2, 5, 10, 20, 40, 60, 100, 150])
def test_any_small_table_fits_into_two_megabytes(n_clients):
    for d in range(1, min(100, 1000 // n_clients) + 1):
        assert sent(10_000 / d, d, n_clients) < 2e6


def test_bins_are_fewer_where_clients_are_many():
    assert [thinning(Size(1000, 8, n)) for n in (10, 60, 160, 1000)] == [1, 3, 3, 5]
    assert [n_bins(Size(1000, 8, n)) for n in (10, 160)] == [24, 8]


def test_sums_in_single_precision_are_definite_and_close_to_the_exact_ones():
    x, y = make_friedman1(200, noise=1.0, random_state=1)
    model = up.FedBNR(random_state=0, max_iter=2).fit(x, y, by=np.arange(200) % 10)
    asked = {"spec": model._spec(), "share": 0.0, "seed": 0}
    exact, single = (sum_statistics(model._fed, model.design_, single=s, **asked) for s in (False, True))
    k = len(exact.z)
    np.testing.assert_allclose(single.zz, exact.zz, rtol=1e-5, atol=1e-5)
    assert np.linalg.eigvalsh(bayes_linear.unpack(single.zz, k)).min() > 0
    assert k > 180  # more features than rows would determine


@pytest.mark.parametrize(("n", "d", "n_clients"), [(600, 10, 10), (240, 10, 40), (480, 6, 150)])
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
    apart = up.FedBNR(random_state=0).fit(up.federate(x, y, by=np.arange(len(y)) % 10, mode="one by one"))
    for same in (other, apart):  # the last layer's second moments are sent in single precision
        np.testing.assert_allclose(same.predict(x), model.predict(x), rtol=1e-4, atol=1e-4)
    model.save(tmp_path)
    np.testing.assert_array_equal(up.load(tmp_path).predict(x), model.predict(x))
