"""Quantiles by rank and weight: NumPy's to the last bit, for every rule."""

import numpy as np
import pytest

from unpooled.models.describe.quantile_rules import METHODS, between, places

RNG = np.random.default_rng(0)
P = np.concatenate([[0, 1, 0.5, 0.25, 0.75, 0.1, 0.9, 0.95, 1 / 3], RNG.random(40)])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 10, 17, 100, 1001])
def test_it_is_numpys(method, n):
    for x in (RNG.normal(size=n), RNG.integers(0, 5, n) * 1.1, RNG.lognormal(3, 2, n)):
        ordered = np.sort(x)
        place = places(n, P, method)
        ends = (ordered[np.clip(side, 0, n - 1).astype(int)] for side in (place.lower, place.upper))
        np.testing.assert_array_equal(between(*ends, place.weight), np.quantile(x, P, method=method))
