"""Columns of few values: rows are spread over the interval of their value, the same in every question."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled.client import Client
from unpooled.models.open_mixture.few_values import find_steps, smallest_step, spread_out

RARE = 0.02


def three_clusters(rng, n):
    z = rng.integers(3, size=n)
    numbers = 6.0 * np.eye(3)[z] + rng.normal(size=(n, 3))
    return np.column_stack([numbers, rng.random(n) < RARE, rng.poisson(0.1, size=n)]), z


@pytest.mark.parametrize(("n_clients", "rows"), [(4, 100), (10, 40)])
def test_columns_of_few_values_do_not_hide_the_clusters_of_the_others(n_clients, rows):
    rng = np.random.default_rng(0)
    sites = {f"site {i}": three_clusters(rng, rows) for i in range(n_clients)}
    model = up.OpenMixture(random_state=0).fit({name: x for name, (x, _) in sites.items()})
    truth, found = (np.concatenate(a) for a in ([z for _, z in sites.values()], list(model.labels_.values())))
    assert model.n_components_ == 3
    assert adjusted_rand_score(truth, found) > 0.9
    assert (model.column_step_ > 0).tolist() == [False, False, False, True, True]


def test_a_step_is_a_power_of_two_and_none_where_values_are_many():
    assert smallest_step(np.repeat([0.0, 3.1, 9.0], 5)) == 4.0
    assert smallest_step(np.repeat([0.1 + 0.2, 0.3, 1.3], 5)) == 1.0  # the first two are one value
    assert smallest_step(np.repeat([1.0, 2.0], 4)) == 0.0  # four rows per value
    assert smallest_step(np.ones(50)) == smallest_step(np.zeros(0)) == 0.0


def test_steps_are_those_of_most_clients_at_which_the_column_varies():
    ramp = np.arange(20.0)
    few, many, same = ramp % 2, ramp, np.zeros(20)
    columns = {"a": (few, few), "b": (few, many), "c": (same, many), "d": (same, many)}
    fed = up.federate({name: np.column_stack(c) for name, c in columns.items()})
    assert find_steps(fed, np.ones(2)).tolist() == [1.0, 0.0]


def test_missing_values_stay_missing_and_rows_stay_within_their_interval():
    x = np.array([[0.0, 0.5], [np.nan, 0.7], [1.0, 0.1]])
    moved = spread_out(x, Client("a", x), [2.0, 0.0])
    assert np.isnan(moved[1, 0])
    assert np.array_equal(moved[:, 1], x[:, 1])
    assert np.nanmax(np.abs(moved - x)) <= 1.0


def test_stacked_clients_and_single_ones_have_the_same_rows_whatever_the_padding():
    x = np.zeros((2, 6, 3))
    stacked = Client("two", x, stacked=True, members=("a", "b"))
    together = spread_out(x, stacked, [1.0, 1.0, 1.0])
    alone = [spread_out(rows[:4], Client(name, rows[:4]), [1.0, 1.0, 1.0]) for name, rows in zip("ab", x)]
    assert np.array_equal(together[:, :4], alone)
    assert not np.array_equal(alone[0], alone[1])


def test_clusters_do_not_depend_on_the_units_of_columns_of_few_values():
    rng = np.random.default_rng(1)
    data = {f"site {i}": three_clusters(rng, 50)[0] for i in range(6)}
    factors = np.array([1.0, 1e-4, 7.0, 0.3, 1e5])
    one, two = (up.OpenMixture(random_state=0).fit({n: x * f for n, x in data.items()}) for f in (1.0, factors))
    assert all(np.array_equal(one.labels_[name], two.labels_[name]) for name in data)
    np.testing.assert_allclose(two.means_, one.means_ * factors, rtol=1e-6, atol=1e-9 * factors.max())
