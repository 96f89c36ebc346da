"""Columns in units of any size beside each other: a mixture is the same in all of them."""

import numpy as np
import pytest

import unpooled as up

UNITS = np.array([1.0, 1e12, 1e3])


@pytest.fixture(name="rows")
def rows_():
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(3, 3)) * 3
    return np.concatenate([c + rng.normal(size=(60, 3)) for c in centres])


@pytest.mark.parametrize("solver", ["em", "fedem"])
def test_a_mixture_is_the_same_in_any_units(rows, solver):
    by = np.arange(len(rows)) % 4
    plain = up.GaussianMixture(3, solver=solver, reg_covar=0.0, random_state=0).fit(rows, by=by)
    scaled = up.GaussianMixture(3, solver=solver, reg_covar=0.0, random_state=0).fit(rows * UNITS, by=by)
    np.testing.assert_allclose(scaled.means_ / UNITS, plain.means_, atol=1e-6)
    np.testing.assert_allclose(scaled.covariances_ / np.outer(UNITS, UNITS), plain.covariances_, atol=1e-6)


def test_a_mixture_goes_on_from_its_own_parameters_in_any_units(rows):
    first = up.GaussianMixture(3, reg_covar=0.0, random_state=0).fit(rows * UNITS)
    start = {"weights_init": first.weights_, "means_init": first.means_, "precisions_init": first.precisions_}
    again = up.GaussianMixture(3, reg_covar=0.0, **start).fit(rows * UNITS)
    assert again.score(rows * UNITS) >= first.score(rows * UNITS) - 1e-6


def test_mixed_mixtures_are_the_same_in_any_units(rows):
    by = np.arange(len(rows)) % 4
    plain = up.MixedMixture(3, random_state=0).fit(rows, by=by)
    scaled = up.MixedMixture(3, random_state=0).fit(rows * UNITS, by=by)
    np.testing.assert_array_equal(scaled.predict(rows * UNITS), plain.predict(rows))
