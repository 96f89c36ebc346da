"""Folds are even, do not depend on the order of rows, and change with the table."""

import numpy as np
import pytest

from unpooled.maths.folds import FOLDS, fold_of, tenths


def table(n=103, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.integers(0, 2, n)


@pytest.mark.parametrize("folds", FOLDS)
def test_folds_are_even(folds):
    counts = np.bincount(fold_of(*table(), folds), minlength=folds)
    assert len(counts) == folds
    assert counts.max() - counts.min() <= 103 % 10


def test_the_order_of_rows_does_not_matter():
    x, y = table()
    order = np.random.default_rng(1).permutation(len(x))
    np.testing.assert_array_equal(tenths(x[order], y[order]), tenths(x, y)[order])


def test_equal_rows_are_dealt_out_too():
    assert np.bincount(tenths(np.ones((50, 2)), None)).tolist() == [5] * 10


def test_words_are_labels_too():
    x, y = table()
    words = np.array(["no", "yes"])[y]
    assert np.bincount(tenths(x, words)).max() == 11
    assert (tenths(x, words) != tenths(x, 1 - y)).any()


def test_who_has_all_rows_but_one_cannot_tell_where_they_are():
    """Another last row deals all the others anew."""
    x, y = table()
    other = x.copy()
    other[-1] += 1
    same = (tenths(x, y)[:-1] == tenths(other, y)[:-1]).mean()
    assert same < 0.25


def test_missing_values_and_signed_zeros():
    x = np.array([[np.nan, 0.0], [1.0, -0.0], [1.0, 0.0]] * 10)
    np.testing.assert_array_equal(np.sort(tenths(x, None)), np.repeat(np.arange(10), 3))
