"""Held-out rows are chosen by what they hold."""

import numpy as np

from unpooled.models.regression.held_out_rows import held_out


def test_the_choice_does_not_depend_on_where_a_row_is():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5000, 3)), rng.normal(size=(5000, 1))
    chosen, order = held_out(x, y, 0.2, 7), rng.permutation(5000)
    np.testing.assert_array_equal(held_out(x[order], y[order], 0.2, 7), chosen[order])
    np.testing.assert_array_equal(held_out(x.reshape(50, 100, 3), y.reshape(50, 100, 1), 0.2, 7).ravel(), chosen)


def test_the_share_is_met_and_seeds_differ():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 50, size=(20_000, 4)).astype(float), rng.normal(size=(20_000, 1))
    first, second = held_out(x, y, 0.1, 0), held_out(x, y, 0.1, 1)
    assert abs(first.mean() - 0.1) < 0.01
    assert abs((first & second).mean() - 0.01) < 0.004
    assert abs(np.corrcoef(first, y[:, 0])[0, 1]) < 0.03
    assert not held_out(x, y, 0.0, 0).any()
