"""Laws of partitions: every row has one client, sizes are as promised, skew grows as alpha falls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unpooled.data import partition
from unpooled.data.tables import clients_from
from unpooled.errors import BadParameter

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 10, 5000)
X = RNG.normal(size=(5000, 4))

ALL = {
    "iid": lambda seed: partition.iid(5000, 20, random_state=seed),
    "dirichlet": lambda seed: partition.dirichlet(Y, 20, 0.3, random_state=seed),
    "sizes by Dirichlet": lambda seed: partition.quantity_skew(5000, 20, alpha=0.5, random_state=seed),
    "sizes by lognormal": lambda seed: partition.quantity_skew(5000, 20, sigma=1.0, random_state=seed),
    "sorted chunks": lambda seed: partition.sorted_chunks(X, clients=20, chunks=3, column=1, random_state=seed),
    "by column": lambda seed: partition.by_column(np.arange(5000) % 60, 20, random_state=seed),
}


@pytest.mark.parametrize("split", ALL.values(), ids=ALL)
def test_every_row_has_one_client_every_client_has_rows_and_a_seed_decides(split):
    owner = split(7)
    assert owner.shape == (5000,)
    assert owner.dtype.kind == "i"
    assert set(owner) == set(range(20))
    np.testing.assert_array_equal(owner, split(7))
    np.testing.assert_array_equal(owner, split(np.random.default_rng(7)))
    assert (owner != split(8)).any()
    assert sum(len(c.x) for c in clients_from(X, by=owner).clients) == 5000


def sizes(owner, clients=20):
    return np.bincount(owner, minlength=clients)


def label_skew(owner):
    """Mean distance in total variation between a client's labels and everybody's."""
    table = np.zeros((20, 10))
    np.add.at(table, (owner, Y), 1)
    return np.abs(table / table.sum(1, keepdims=True) - table.sum(0) / table.sum()).sum(1).mean() / 2


def test_iid_is_even_in_size_and_in_labels():
    owner = partition.iid(5003, 20, random_state=0)
    assert set(sizes(owner)) == {250, 251}
    assert label_skew(partition.iid(5000, 20, random_state=0)) < 0.1


def test_label_skew_grows_as_alpha_falls():
    skews = [
        np.mean([label_skew(partition.dirichlet(Y, 20, a, random_state=s)) for s in range(5)])
        for a in (100, 1, 0.1, 0.01)
    ]
    assert all(np.diff(skews) > 0.05)
    assert skews[0] < 0.15
    assert skews[-1] > 0.7


def test_size_skew_grows_as_alpha_falls_and_as_sigma_rises():
    def spread(**how):
        return np.mean([sizes(partition.quantity_skew(5000, 20, random_state=s, **how)).std() for s in range(10)])

    assert spread(alpha=100) < spread(alpha=1) < spread(alpha=0.1)
    assert spread(sigma=0.1) < spread(sigma=0.5) < spread(sigma=2.0)
    owner = partition.quantity_skew(5000, 20, alpha=1, random_state=0)
    assert label_skew(owner) < 0.3  # which rows a client has does not depend on them
    assert abs(np.corrcoef(owner, np.arange(5000))[0, 1]) < 0.05


@settings(max_examples=50, deadline=None)
@given(
    clients=st.integers(1, 30),
    min_rows=st.integers(0, 10),
    extra=st.integers(0, 50),
    alpha=st.sampled_from([1e-3, 0.1, 10.0]),
    seed=st.integers(0, 10),
)
def test_no_client_has_fewer_rows_than_promised(clients, min_rows, extra, alpha, seed):
    n = clients * min_rows + extra
    y = np.arange(n) % 3
    for owner in (
        partition.dirichlet(y, clients, alpha, min_rows=min_rows, random_state=seed),
        partition.quantity_skew(n, clients, alpha=alpha, min_rows=min_rows, random_state=seed),
    ):
        assert len(owner) == n
        assert sizes(owner, clients).min() >= min_rows
        assert len(sizes(owner, clients)) == clients


def test_sorted_chunks_are_runs_of_the_sorted_column():
    owner = partition.sorted_chunks(X, clients=20, chunks=3, column=1, random_state=0)
    along = owner[np.argsort(X[:, 1])]
    runs = 1 + np.count_nonzero(np.diff(along))
    assert 20 < runs <= 60
    assert sizes(owner).max() - sizes(owner).min() <= 3
    one = partition.sorted_chunks(X, clients=20, column=1, random_state=0)
    assert np.count_nonzero(np.diff(one[np.argsort(X[:, 1])])) == 19


def test_sorted_chunks_find_the_column_that_says_most_of_y():
    x = X.copy()
    y = -2 * x[:, 3] + x[:, 0] + RNG.normal(size=5000)
    x[RNG.random(x.shape) < 0.3] = np.nan
    x[:, 2] = 5.0  # a constant correlates with nothing
    assert partition.most_correlated(x, y) == 3
    np.testing.assert_array_equal(
        partition.sorted_chunks(x, y, clients=4, random_state=0),
        partition.sorted_chunks(x, column=3, clients=4, random_state=0),
    )
    complete = ~np.isnan(x[:, 3])
    r = np.corrcoef(x[complete, 3], y[complete])[0, 1]
    others = [np.corrcoef(x[k, j], y[k])[0, 1] for j in (0, 1) for k in [~np.isnan(x[:, j])]]
    assert abs(r) > np.abs(others).max()


def test_by_column_keeps_the_rows_of_a_value_together():
    sites = np.array(["b", "a", "c", "a", "b", "d"])
    np.testing.assert_array_equal(partition.by_column(sites), [1, 0, 2, 0, 1, 3])
    owner = partition.by_column(sites, 2, random_state=0)
    assert owner[1] == owner[3]
    assert owner[0] == owner[4]
    assert sorted(owner[[0, 1, 2, 5]]) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.iid(3, 4), "3 rows are too few for 4"),
        (lambda: partition.iid(3, 0), "clients=0"),
        (lambda: partition.dirichlet(Y, 20, 0.0), "alpha=0.0 should be above 0"),
        (lambda: partition.dirichlet(Y, 20, min_rows=300), "too few for 20 parts of 300"),
        (lambda: partition.quantity_skew(10, 2), "either alpha= .* or sigma="),
        (lambda: partition.quantity_skew(10, 2, alpha=1, sigma=1), "either alpha= .* or sigma="),
        (lambda: partition.sorted_chunks(X, clients=2), "needs column=, or y="),
        (lambda: partition.by_column([1, 1], 2), "too few"),
    ],
)
def test_impossible_wishes(call, message):
    with pytest.raises(BadParameter, match=message):
        call()
