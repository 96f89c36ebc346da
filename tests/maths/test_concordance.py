"""Concordance from counts is that of all pairs, compared one by one."""

import numpy as np
import pytest

from unpooled.models.survival import harrell

RNG = np.random.default_rng(0)


def one_by_one(time, died, score):
    right = same = every = 0
    for i in np.flatnonzero(died):
        for j in range(len(time)):
            longer = time[j] > time[i] or (time[j] == time[i] and not died[j])
            right += longer and score[i] > score[j]
            same += longer and score[i] == score[j]
            every += longer
    return harrell.Pairs(right, same, every)


@pytest.mark.parametrize("block", [1, 8, 512])
def test_tables_and_rows_give_the_pairs_of_a_double_loop(monkeypatch, block):
    monkeypatch.setattr(harrell, "BLOCK", block)
    time, died = RNG.integers(0, 12, 90).astype(float), RNG.random(90) < 0.6
    score = RNG.normal(size=90).round(1)
    expected = one_by_one(time, died, score)
    assert harrell.of_rows(time, died, score) == expected
    cells = np.unique(score, return_inverse=True)[1]
    table = np.zeros((2, 12, cells.max() + 1))
    np.add.at(table, (died.astype(int), time.astype(int), cells), 1)
    assert harrell.pairs(table[1], table[0]) == expected
    assert 0 < harrell.index(expected) < 1


def test_nothing_to_compare_is_no_number():
    assert np.isnan(harrell.index(harrell.of_rows(np.ones(3), np.zeros(3, bool), np.zeros(3))))


def test_weights_count_rows():
    time, died = RNG.integers(0, 12, 60).astype(float), RNG.random(60) < 0.6
    score, w = RNG.normal(size=60).round(1), RNG.integers(1, 3, 60)
    again = np.repeat(np.arange(60), w)
    assert harrell.of_rows(time, died, score, w.astype(float)) == pytest.approx(
        harrell.of_rows(time[again], died[again], score[again])
    )
