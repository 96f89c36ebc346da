"""Values found by counts alone: the distinct ones, and those of given ranks, to the last bit."""

import numpy as np
import pytest

from unpooled.maths import searching
from unpooled.maths.ordered import HIGHEST, LOWEST, to_keys, to_values

RNG = np.random.default_rng(0)
TINY = np.finfo(float).tiny
LISTS = {
    "normal": RNG.normal(size=200),
    "decimals": RNG.normal(size=200).round(1),
    "whole": RNG.integers(-5, 90, 200) * 1.0,
    "extreme": np.array([-np.finfo(float).max, -1e300, -TINY, -5e-324, 0.0, 5e-324, 1e-300, 0.1, np.finfo(float).max]),
    "one": np.array([0.3]),
    "constant": np.full(9, -7.25),
}


def found(search, values, cumulated=None, least=0.0):
    rounds = 0
    while searching.is_open(search).any():
        search = searching.one_round(search, lambda _, at: searching.rows_below(values, cumulated, at), least)
        rounds += 1
    return search, rounds


def test_keys_are_ordered_as_numbers_are():
    x = np.unique(np.concatenate(list(LISTS.values())))
    keys = to_keys(x)
    assert (np.diff(keys.astype(object)) > 0).all()
    np.testing.assert_array_equal(to_values(keys), x)
    assert to_keys(np.array([-0.0])) == to_keys(np.array([0.0]))
    assert to_values(to_keys(np.array([1.0])) + np.uint64(1))[0] == np.nextafter(1.0, 2)
    assert LOWEST < HIGHEST


@pytest.mark.parametrize("name", LISTS)
def test_distinct_values_and_their_counts(name):
    values = np.sort(LISTS[name])
    search, rounds = found(searching.everything([0], [len(values)]), values)
    expected, counts = np.unique(values, return_counts=True)
    np.testing.assert_array_equal(searching.values(search), expected)
    np.testing.assert_array_equal(search.rows, counts)
    assert rounds <= 16


@pytest.mark.parametrize("name", LISTS)
def test_values_of_every_rank(name):
    values = np.sort(LISTS[name])
    ranks = np.arange(len(values))
    search, rounds = found(searching.ranked(np.zeros(len(ranks)), np.full(len(ranks), len(values)), ranks), values)
    np.testing.assert_array_equal(searching.values(search), values)
    assert rounds <= 16


def test_rounded_data_take_few_rounds():
    for name in ("decimals", "whole"):
        values = np.sort(LISTS[name])
        assert found(searching.everything([0], [len(values)]), values)[1] <= 7


def test_values_of_too_few_rows_are_not_followed():
    values = np.sort(np.array([1.0] * 9 + [2.0] * 3 + [1e6]))
    search, _ = found(searching.everything([0], [len(values)]), values, least=3)
    np.testing.assert_array_equal(searching.values(search), [1.0, 2.0])
    np.testing.assert_array_equal(search.rows, [9, 3])


def test_weights_count_as_rows():
    values, weights = np.array([1.0, 2.0, 5.0]), np.array([0.25, 2.0, 0.5])
    search, _ = found(searching.everything([0], [weights.sum()]), values, np.cumsum(weights))
    np.testing.assert_array_equal(searching.values(search), values)
    np.testing.assert_allclose(search.rows, weights)
