"""The discrete Gaussian: its law, its moments, its low bits, and the same numbers for the same seed."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from unpooled.privacy.sampler import BASE, TAIL, WIDTH, DiscreteGaussian, _look_up, thresholds

SEED = bytes(range(32))


def test_the_table_is_the_law_to_120_bits():
    high, low = thresholds()
    reached = [Fraction((int(h) << 64) | int(l), 1 << 128) for h, l in zip(high[:50], low[:50])]
    j = np.arange(-TAIL * BASE, TAIL * BASE + 1)
    weight = np.exp(-(j.astype(np.longdouble) ** 2) / (2 * BASE**2))
    total = weight.sum()
    for m in (0, 1, 7, 49):
        expected = weight[np.abs(j) <= m].sum() / total
        assert float(reached[m]) == pytest.approx(float(expected), rel=1e-14)
    assert np.all(np.diff(high.astype(object) * 2**64 + low.astype(object)) >= 0)


def test_base_draws_follow_the_law():
    x = DiscreteGaussian(SEED).base(400_000)
    edges = np.arange(-3 * BASE, 3 * BASE + 1, 64)
    seen, _ = np.histogram(x, edges)
    j = np.arange(-TAIL * BASE, TAIL * BASE + 1)
    p = np.exp(-0.5 * (j / BASE) ** 2)
    expected, _ = np.histogram(j, edges, weights=p)
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-3


def test_small_values_have_their_exact_probabilities():
    x = DiscreteGaussian(SEED).base(2_000_000)
    seen = np.array([(x == v).sum() for v in range(-3, 4)])
    expected = len(x) / (BASE * np.sqrt(2 * np.pi)) * np.exp(-0.5 * (np.arange(-3, 4) / BASE) ** 2)
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-3
    assert seen.sum() == pytest.approx(expected.sum(), abs=4 * np.sqrt(expected.sum()))


def test_wide_draws_have_the_moments_of_a_gaussian():
    z = DiscreteGaussian(SEED).draw(400_000) / WIDTH
    assert abs(z.mean()) < 5 / np.sqrt(len(z))
    assert z.var() == pytest.approx(1, abs=5 * np.sqrt(2 / len(z)))
    assert abs(stats.skew(z)) < 5 * np.sqrt(6 / len(z))
    assert abs(stats.kurtosis(z)) < 5 * np.sqrt(24 / len(z))
    assert stats.kstest(z, "norm").pvalue > 1e-3


@pytest.mark.parametrize("shift", [0, 8, 16])
def test_low_bits_are_uniform(shift):
    x = DiscreteGaussian(SEED).draw(400_000)
    assert stats.chisquare(np.bincount((x >> shift) & 255, minlength=256)).pvalue > 1e-3


def test_numbers_are_fixed_by_the_seed():
    assert DiscreteGaussian(SEED).draw(3).tolist() == [21161716332, -21495405120, -5480579513]
    assert DiscreteGaussian(SEED).draw(3).tolist() != DiscreteGaussian(bytes(32)).draw(3).tolist()


def test_further_draws_are_others():
    one = DiscreteGaussian(SEED)
    assert one.draw(4).tolist() != one.draw(4).tolist()


def test_ties_in_the_upper_word_are_decided_by_the_lower():
    high, low = thresholds()
    j = 1000
    below, above = _look_up(high[j : j + 1], low[j : j + 1] - np.uint64(1)), _look_up(high[j : j + 1], low[j : j + 1])
    assert (below[0], above[0]) == (j, j + 1)


def test_a_short_seed_is_refused():
    with pytest.raises(ValueError, match="can be guessed"):
        DiscreteGaussian(b"short")
