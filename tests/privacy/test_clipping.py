"""Bounds in one sentence each, and vectors that end up in the ball whatever they were."""

import numpy as np
import pytest

from unpooled.errors import BadParameter
from unpooled.privacy.clipping import from_unit, in_ball, parse_bounds, row_weights, to_unit, unit_blocks, unit_weights

NAMES = ["age", "chol"]


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        (None, "bounds= is missing: give each column's"),
        ({"age": (0, 110)}, "bounds= has no entry for column 'chol'"),
        (
            {"age": (0, 110), "chol": (50, 700), "agee": (0, 1)},
            "names column 'agee', which is not there: did you mean 'age'",
        ),
        ({"age": (110, 0), "chol": (50, 700)}, r"bounds of column 'age' are reversed \(110, 0\)"),
        ({"age": (5, 5), "chol": (50, 700)}, r"bounds of column 'age' are equal \(5, 5\)"),
        ({"age": (0, np.inf), "chol": (50, 700)}, "which are not finite"),
        ({"age": (0, np.nan), "chol": (50, 700)}, "which are not finite"),
        ({"age": 7, "chol": (50, 700)}, r"bounds of column 'age' are 7: give two numbers \(low, high\)"),
        ({"age": ("low", "high"), "chol": (50, 700)}, "give two numbers"),
        ([[0, 110]], r"bounds= has shape \(1, 2\), but 2 columns need \(2, 2\)"),
        ("wide", "bounds='wide' cannot be read"),
    ],
)
def test_bad_bounds_are_refused_in_one_sentence(bounds, sentence):
    with pytest.raises(BadParameter, match=sentence):
        parse_bounds(bounds, NAMES, 2)


def test_good_bounds_in_any_order():
    found = parse_bounds({"chol": (50, 700), "age": (0, 110)}, NAMES, 2)
    np.testing.assert_array_equal(found, [[0, 110], [50, 700]])
    np.testing.assert_array_equal(parse_bounds({1: (0, 1), 0: (2, 3)}, None, 2), [[2, 3], [0, 1]])


def test_values_outside_move_to_the_nearest_bound_and_gaps_stay():
    bounds = np.array([[0.0, 10.0], [-1.0, 1.0]])
    x = np.array([[5.0, 0.0], [20.0, -7.0], [np.nan, 1.0], [np.inf, -np.inf]])
    u = to_unit(x, bounds)
    np.testing.assert_array_equal(u, [[0, 0], [1, -1], [np.nan, 1], [1, -1]])
    np.testing.assert_array_equal(from_unit(u[:2], bounds), [[5, 0], [10, -1]])


@pytest.mark.parametrize("bounds", [[[0.0, 0.0]], [[np.nan, 1.0]], [[np.inf, -np.inf]], [[3.0, -3.0]]])
def test_rows_stay_within_one_whatever_the_bounds(bounds):
    u = to_unit(np.array([[1.0], [-1e300], [0.0], [np.inf]]), np.array(bounds))
    assert np.all(np.abs(u) <= 1)


def test_vectors_end_up_in_the_ball():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(1000, 4)) * 10.0 ** rng.uniform(-150, 150, size=(1000, 1))
    v[:4] = [[np.nan, 0, 0, 0], [np.inf, 1, 1, 1], [0, 0, 0, 0], [1e308, 1e308, 1e308, 1e308]]
    short = in_ball(v, 0.5)
    assert np.linalg.norm(short, axis=1).max() <= 0.5 + 1e-15
    np.testing.assert_array_equal(short[:3], 0)
    inside = np.linalg.norm(v[4:], axis=1) < 0.5
    np.testing.assert_array_equal(short[4:][inside], v[4:][inside])


def test_weights_lie_between_zero_and_one():
    np.testing.assert_array_equal(row_weights(np.array([0.5, 3, -1, np.nan, np.inf])), [0.5, 1, 0, 0, 1])


@pytest.mark.parametrize(
    "blocks", [[3.0, 4.0, 0.0], [np.inf, 1, 1], [np.nan, 0, 1], [1e200, 1e200, 1e200], [-1, -1, -1]]
)
def test_blocks_have_total_square_of_at_most_one(blocks):
    assert (unit_blocks(np.array(blocks)) ** 2).sum() <= 1 + 1e-15


def test_a_unit_counts_no_more_than_one_row():
    rng = np.random.default_rng(0)
    units = rng.integers(0, 50, size=1000)
    weights = unit_weights(units, 4)
    totals = np.bincount(units, weights)
    assert totals.max() <= 1
    np.testing.assert_array_equal(totals, np.minimum(np.bincount(units), 4) / 4)
    with pytest.raises(BadParameter, match="how many rows of a unit count"):
        unit_weights(units, 0)
