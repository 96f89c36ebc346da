"""FedBNR with default parameters: a sum of kernels in the last layer, within a budget of bytes."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, make_friedman1

import unpooled as up
from unpooled.errors import BadData
from unpooled.federation import Layer
from unpooled.maths import calibration, grids
from unpooled.maths.feature_maps import features, start
from unpooled.models.fedbnr.budget import (
    MAX_FREQUENCIES,
    MIN_FREQUENCIES,
    Size,
    budget,
    bytes_left,
    fits_a_grid,
    frequencies_to_learn_with,
    n_bins,
    n_features,
    n_frequencies,
    rounds_to_learn_in,
    thinning,
)
from unpooled.models.fedbnr.last_map import HINGES, MIN_POINTS
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
    for n_clients in (10, 100, 1000):
        size = Size(1000, 5, n_clients)
        m, left = n_frequencies(size), bytes_left(size)
        assert m in (MIN_FREQUENCIES, MAX_FREQUENCIES) or 0.7 * left < n_clients * last_answers(2 * m) < 1.01 * left
    assert budget(Size(10_000, 5, 10)) > 4 * budget(Size(2_000, 5, 10)) == 4 * budget(Size(10, 5, 10))
    size = Size(1000, 5, 20)
    assert 0.9 * bytes_left(size) < 20 * last_answers(n_features(size)) < 1.01 * bytes_left(size)


def answer(k, number=8):
    """Bytes of the statistics of k features, `number` each for second moments of features."""
    return number * k * (k + 1) / 2 + 8 * (2 * k + 3)


def last_answers(k):
    """Bytes of the last layer's sums: squares of k features, then statistics with second moments in four bytes."""
    return 8 * (k + 1) + answer(k, 4)


def sent(rows, d, n_clients):
    """Bytes that all clients send in all, at most."""
    size = Size(rows, d, n_clients)
    k, last = 2 * frequencies_to_learn_with(size), n_features(size)
    last = max(last, d + int(HINGES * last) + MIN_POINTS)
    learning = rounds_to_learn_in(size) * (answer(k) + 8 * (d + 5))  # statistics and a gradient per round
    columns = 8 * (3 * d + 4) + d * (4 * BINS / thinning(size) + 4 + 12 * n_bins(size)) + 8 * d * (d + 1) / 2
    return n_clients * (learning + last_answers(last) + columns + 4 * calibration.BINS)


@pytest.mark.parametrize("n_clients", [2, 5, 10, 20, 40, 60, 100, 150])
def test_any_small_table_fits_into_two_megabytes(n_clients):
    for d in range(1, min(100, 1000 // n_clients) + 1):
        assert sent(10_000 / d, d, n_clients) < 2e6


def test_bins_are_fewer_where_clients_are_many():
    assert [thinning(Size(1000, 8, n)) for n in (10, 60, 160, 1000)] == [1, 3, 3, 5]
    assert [n_bins(Size(1000, 8, n)) for n in (10, 160)] == [24, 8]


def test_second_moments_are_whole_numbers_of_four_bytes():
    x, y = make_friedman1(200, noise=1.0, random_state=1)
    fed = Kept(up.federate(x, y, by=np.arange(200) % 10))
    up.FedBNR(random_state=0, max_iter=2).fit(fed)
    totals = [answer for name, answer in fed.answers if name == "regression.statistics"]
    assert [stats.zz.dtype for stats in totals] == [np.float64, np.float64, np.int32]
    assert 2**28 <= np.abs(totals[-1].zz.astype(float)).max() < 2**31  # the grid is as fine as four bytes allow


class Kept(Layer):
    """A federation that keeps the totals."""

    def __init__(self, inner):
        super().__init__(inner)
        self.answers = []

    def sum(self, ask, down):
        found = self.inner.sum(ask, down)
        self.answers.append((ask.name, found))
        return found


class Late(Kept):
    """A federation whose last client does not answer when the grid is chosen."""

    def sum(self, ask, down):
        if ask.name == "regression.squares":
            return self.inner.only(self.inner.names[:-1]).sum(ask, down)
        return super().sum(ask, down)


def test_clients_that_the_grid_was_made_without_are_asked_for_eight_bytes():
    x, y = make_friedman1(200, noise=1.0, random_state=1)
    fed = Late(up.federate(x, y, by=np.arange(200) % 2, mode="one by one"))
    model = up.FedBNR(random_state=0, max_iter=2).fit(fed)
    plain = up.FedBNR(random_state=0, max_iter=2).fit(x, y, by=np.arange(200) % 2)
    totals = [stats for name, stats in fed.answers if name == "regression.statistics"]
    assert [stats.zz.dtype for stats in totals[-2:]] == [np.int32, np.float64]
    assert model.n_sums_ == plain.n_sums_ + 1
    np.testing.assert_allclose(model.predict(x), plain.predict(x), atol=0.02 * y.std())


def test_a_sum_that_exceeds_four_bytes_is_refused():
    assert grids.in_four_bytes(np.array([-5.0, 2.0**31 - 1])).tolist() == [-5, 2**31 - 1]
    with pytest.raises(BadData, match="exceed four bytes"):
        grids.in_four_bytes(np.array([2.0**31]))


def test_many_rows_are_not_put_on_a_grid(monkeypatch):
    x, y = make_friedman1(200, noise=1.0, random_state=1)
    fine = up.FedBNR(random_state=0, max_iter=2).fit(x, y)
    monkeypatch.setattr(grids, "MOST_ROWS", 100)
    plain = up.FedBNR(random_state=0, max_iter=2).fit(x, y)
    assert not len(plain.design_.kernel.omega["steps"])
    assert plain.n_sums_ == fine.n_sums_ - 1
    assert len(plain.stats_.z) <= len(fine.stats_.z) == len(fine.design_.kernel.omega["steps"])
    assert [fits_a_grid(Size(rows, 5, 10)) for rows in (100, 101)] == [True, False]


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


def test_the_map_is_saved(tmp_path):
    x, y = additive(3)
    model = up.FedBNR(random_state=0).fit(x, y, by=np.arange(len(y)) % 10)
    model.save(tmp_path)
    np.testing.assert_array_equal(up.load(tmp_path).predict(x), model.predict(x))


def splits(x, y):
    """The rows as ten clients in five ways, and one by one."""
    rng, turn = np.random.default_rng(0), np.arange(len(y)) % 10
    order = rng.permutation(len(y))
    yield up.federate(x, y, by=turn)
    yield up.federate(x, y, by=turn, mode="one by one")
    yield up.federate(x, y, by=np.sort(turn))
    yield up.federate(x, y, by=rng.permutation(turn))
    yield up.federate(x[order], y[order], by=turn)
    yield up.federate(x, y, by=np.argsort(np.argsort(y)) * 10 // len(y))


TABLES = {"smooth": additive(3), "diabetes": load_diabetes(return_X_y=True), "orthogonal": None}
TABLES["orthogonal"] = (
    x := np.random.default_rng(1).integers(0, 2, size=(400, 3)) * 2.0 - 1,
    x[:, 0] * x[:, 1] + x[:, 2],
)


@pytest.mark.parametrize("options", [{}, {"features": "ard"}], ids=["sum", "ard"])
@pytest.mark.parametrize("table", TABLES)
def test_the_fit_is_the_same_for_any_split(table, options):
    x, y = TABLES[table]
    y = y + 0.1 * y.std() * np.random.default_rng(0).normal(size=len(y))
    first, *others = (up.FedBNR(random_state=0, **options).fit(fed) for fed in splits(x, y))
    for other in others:
        np.testing.assert_allclose(other.predict(x), first.predict(x), rtol=0, atol=1e-10 * y.std())
        np.testing.assert_allclose(other.interval(x), first.interval(x), rtol=0, atol=1e-10 * y.std())


def test_the_fit_with_weights_is_the_same_for_any_split():
    x, y = additive(5, 300)
    w, turn = np.random.default_rng(2).uniform(0.2, 2.0, 300), np.arange(300) % 5
    first, other = (up.FedBNR(random_state=0).fit(x, y, by=by, sample_weight=w) for by in (turn, np.sort(turn)))
    np.testing.assert_allclose(other.predict(x), first.predict(x), rtol=0, atol=1e-8)


def test_a_client_forgotten_and_added_again_leaves_the_same_sums():
    x, y = additive(6, 300)
    model = up.FedBNR(random_state=0, max_iter=2).fit(x, y, by=np.arange(300) % 5)
    before = model.stats_.zz.copy()
    rows = np.arange(300) % 5 == 3
    model.forget("3").partial_fit(x[rows], y[rows])
    np.testing.assert_allclose(model.stats_.zz, before, rtol=1e-12, atol=1e-18)
