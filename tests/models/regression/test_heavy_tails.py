"""Heavy-tailed columns: quartiles from added counts, compression far out only, and moments of the compressed values."""

import numpy as np
import pytest

from unpooled.maths.calibration import histogram
from unpooled.models.regression import heavy_tails


def counts_of(z):
    return histogram(z, np.ones(len(z)), heavy_tails.EDGES)


@pytest.fixture(name="z")
def z_():
    rng = np.random.default_rng(0)
    z = np.stack([rng.normal(size=4000), rng.exponential(size=4000), rng.standard_t(1.5, size=4000)], 1)
    return (z - z.mean(0)) / z.std(0)


def test_counts_add(z):
    np.testing.assert_array_equal(counts_of(z[:100]) + counts_of(z[100:]), counts_of(z))


def test_centre_and_spread_are_median_and_quartiles(z):
    tails = heavy_tails.find_heavy(counts_of(z))
    lower, median, upper = np.percentile(z, [25, 50, 75], axis=0)
    np.testing.assert_allclose((tails.median - median) / (upper - lower), 0.0, atol=0.05)
    np.testing.assert_allclose(tails.robust_std, (upper - lower) / heavy_tails.NORMAL_IQR, rtol=0.06)


def test_moments_are_those_of_the_compressed_values(z):
    counts = counts_of(z)
    tails = heavy_tails.find_heavy(counts)
    mean, scale = heavy_tails.moments(tails, counts)
    values = heavy_tails.compress(tails, z)
    np.testing.assert_allclose(mean, values.mean(0), atol=0.02)
    np.testing.assert_allclose(scale, values.std(0), rtol=0.02)


def test_a_normal_column_stays_as_it_is_and_heavy_ones_are_compressed_far_out_only(z):
    tails = heavy_tails.find_heavy(counts_of(z))
    values, straight = heavy_tails.compress(tails, z), (z - tails.median) / tails.robust_std
    np.testing.assert_array_equal(tails.heavy, [0, 1, 1])
    np.testing.assert_array_equal(values[:, 0], z[:, 0])
    assert (np.argsort(values, 0) == np.argsort(z, 0)).all()
    near = (np.abs(straight) < 0.3) & (tails.heavy > 0)
    np.testing.assert_allclose(values[near], straight[near], atol=0.005)
    assert np.abs(values[:, 2]).max() < 0.2 * np.abs(straight[:, 2]).max()


def test_a_column_that_is_mostly_one_value_keeps_its_standard_deviation():
    z = np.zeros((100, 1))
    z[:20] = np.linspace(1, 9, 20)[:, None]
    z = (z - z.mean()) / z.std()
    tails = heavy_tails.find_heavy(counts_of(z))
    assert tails.heavy == tails.robust_std == 1.0
    np.testing.assert_allclose(tails.median, np.median(z), rtol=0.06)


def test_a_column_without_values_is_left_in_peace():
    tails = heavy_tails.find_heavy(np.zeros((1, len(heavy_tails.MIDDLES))))
    assert np.isfinite(heavy_tails.moments(tails, np.zeros((1, len(heavy_tails.MIDDLES))))).all()


def test_fewer_bins_count_the_same_rows_at_nearly_the_same_values():
    z = np.column_stack([np.random.default_rng(0).normal(size=4000), np.tile([-0.98, 0.98], 2000)])
    fine = counts_of(z)
    for thinning in (1, 3, 5):
        wide = histogram(z, np.ones(len(z)), heavy_tails.thinned_edges(thinning))
        full = heavy_tails.spread_out(wide, thinning)
        assert full.shape == fine.shape
        np.testing.assert_array_equal(full.sum(1), fine.sum(1))
        assert (full[1] > 0).sum() == 2  # a column of two values stays one
        np.testing.assert_allclose(full @ heavy_tails.MIDDLES, fine @ heavy_tails.MIDDLES, atol=0.02 * len(z))
        if thinning == 1:
            np.testing.assert_array_equal(full, fine)
