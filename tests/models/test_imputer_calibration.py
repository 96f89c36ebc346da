"""MixtureImputer's intervals: a histogram per column, from hidden cells and from those that the final fit has seen."""

import types

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.maths import mixture
from unpooled.models.mixture_imputer import calibration, candidates, choice

BINS = calibration.BINS
FLAT = np.full(BINS, 1 / BINS)
NARROW = np.repeat([2.0, 0.0], BINS // 2) / BINS  # all cells are inside half of the nominal coverage
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch):
    """Fewer candidates, which take most of the time."""
    monkeypatch.setattr(candidates, "SIZES", (2, 3))


def test_a_column_of_many_cells_has_its_own_width_and_one_of_few_that_of_all():
    seen = np.stack([1e6 * FLAT, 1e6 * NARROW, 0 * FLAT])
    found = calibration.by_column(0 * seen, 0 * seen, seen)
    assert_allclose(found.sum(1), 1)
    levels = [calibration.nominal(histogram, 0.8) for histogram in found]
    assert_allclose(levels[:2], [0.8, 0.4], atol=1e-3)
    assert_allclose(levels[2], calibration.nominal((FLAT + NARROW) / 2, 0.8), atol=1e-3)


def test_cells_that_lie_farther_out_while_hidden_widen_all_intervals():
    seen = np.stack([1e6 * NARROW] * 2)
    held, again = 1e6 * np.stack([FLAT, FLAT]), 1e6 * np.stack([NARROW, NARROW])
    assert_allclose(calibration.by_column(held, again, seen), [FLAT, FLAT], atol=1e-4)
    assert_allclose(calibration.by_column(held, held, seen), seen / 1e6, atol=1e-4)


def test_differences_leave_no_bin_below_zero():
    held, again = RNG.poisson(1.0, (2, 3, BINS))
    found = calibration.by_column(held, again, RNG.poisson(0.2, (3, BINS)))
    assert (found >= 0).all()
    assert_allclose(found.sum(1), 1)


def test_intervals_cover_in_every_column_whatever_its_distribution():
    """Half of a Laplace distribution is nearer to its middle than of a normal one, and half of a uniform one is farther away."""
    n = 4000
    full = np.column_stack([RNG.normal(size=n), RNG.laplace(size=n), RNG.uniform(-1, 1, n)])
    holes = (RNG.random(full.shape) < 0.25) & (np.arange(3) != RNG.integers(3, size=(n, 1)))
    gaps = np.where(holes, np.nan, full)
    low, high = up.MixtureImputer(1, choose_iter=5).fit(gaps).interval(gaps, 0.5)
    inside = [((low <= full) & (full <= high))[holes[:, j], j].mean() for j in range(3)]
    assert_allclose(inside, 0.5, atol=0.06)


@pytest.mark.parametrize(("enough", "asked"), [(0, [0.1]), (5000, [0.1, 0.1, calibration.SEEN])])
def test_more_cells_are_looked_at_only_where_hidden_ones_are_few(monkeypatch, enough, asked):
    shares = []
    found = up.MixtureImputer._histograms

    def counted(self, fed, state, weights, share):
        shares.append(share)
        return found(self, fed, state, weights, share)

    monkeypatch.setattr(up.MixtureImputer, "_histograms", counted)
    monkeypatch.setattr(calibration, "ENOUGH", enough)
    up.MixtureImputer(1, choose_iter=3).fit(RNG.normal(size=(120, 3)))
    assert shares == asked


def test_columns_that_nearly_determine_each_other_are_filled_by_weak_priors(monkeypatch):
    x = RNG.normal(size=(150, 3))
    full = np.column_stack([x, x @ [1.0, 1.0, 0.0] + 0.001 * RNG.normal(size=150)])
    holes = (RNG.random(full.shape) < 0.1) & (np.arange(4) == RNG.integers(4, size=(150, 1)))
    gaps = np.where(holes, np.nan, full)

    def error():
        filled = up.MixtureImputer(choose_iter=10).fit(gaps).transform(gaps)
        return np.sqrt(np.mean((filled - full)[holes & (np.arange(4) != 2)] ** 2))

    weak = error()
    monkeypatch.setattr(candidates, "SINGLE", (1.0, 10.0, 0.1))
    monkeypatch.setattr(candidates, "WEAK_SIZES", ())
    assert weak < 0.7 * error()


def test_the_gaussian_that_all_are_anchored_to_is_the_same_when_they_are_judged_and_when_they_fill():
    """The share of a strong prior, which foretells the mean of the column, must not make it the anchor of the others."""
    kinds = [candidates.Kind(1, 4.0, 0.0), candidates.Kind(2, 4.0, 0.0), candidates.Kind(1, 400.0, 0.0)]
    params = [
        mixture.Params(np.full(kind.k, 1 / kind.k), np.zeros((kind.k, 4)), np.zeros((kind.k, 10))) for kind in kinds
    ]
    tried = tuple(candidates.Candidate(p, kind.prior, kind.pooled, 0.0, True) for p, kind in zip(params, kinds))
    state = types.SimpleNamespace(candidates=tried)
    shares = np.tile([0.0, 0.7, 0.3], (4, 1))
    assert choice._kept(state, shares).tolist() == [1, 0, 2]
