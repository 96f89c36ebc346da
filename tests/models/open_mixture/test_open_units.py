"""`OpenMixture` gives the same clusters whatever the units of the columns are."""

import numpy as np
import pytest

from unpooled import OpenMixture

FACTORS = np.array([1e-5, 1.0, 3e4])


def moved_clients(skewed):
    """Six clients of three clusters, each moved by an offset of its own."""
    rng = np.random.default_rng(4)
    centres = np.array([[0, 0, 0], [6, 0, 3], [0, 7, 3]])
    shares = rng.dirichlet(np.full(3, 0.5 if skewed else 50.0), size=6)
    kinds = [rng.choice(3, size=80, p=p) for p in shares]
    return {f"c{i}": centres[k] + rng.normal(size=(80, 3)) + 0.5 * rng.normal(size=3) for i, k in enumerate(kinds)}


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.filterwarnings("ignore:sites differ as instruments do")
def test_clusters_do_not_depend_on_units(skewed):
    data = moved_clients(skewed)
    one = OpenMixture(random_state=0).fit(data)
    two = OpenMixture(random_state=0).fit({name: x * FACTORS for name, x in data.items()})
    assert all(np.array_equal(one.labels_[name], two.labels_[name]) for name in data)
    np.testing.assert_allclose(two.means_, one.means_ * FACTORS, rtol=1e-6)
    np.testing.assert_allclose(two.column_scale_, one.column_scale_ * FACTORS, rtol=1e-9)
    np.testing.assert_allclose(two.bic_, one.bic_ + 2 * one.rows_ * np.log(FACTORS).sum(), rtol=1e-9)
    assert one.client_offsets_.keys() == two.client_offsets_.keys()
    for name, offset in one.client_offsets_.items():
        np.testing.assert_allclose(two.client_offsets_[name], offset * FACTORS, rtol=1e-5, atol=1e-9 * FACTORS.max())


def test_the_density_is_that_of_the_table_as_it_was_given():
    """The integral over a grid is 1, and BIC is that of the rows in their own units."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(m, 1.0, size=(100, 1)) for m in (0.0, 12.0)]) * 1e-3
    model = OpenMixture(site_offsets=False, random_state=0).fit({"a": rows[::2], "b": rows[1::2]})
    grid = np.linspace(-0.02, 0.04, 20001)[:, None]
    assert np.exp(model.score_samples(grid)).sum() * (grid[1, 0] - grid[0, 0]) == pytest.approx(1.0, abs=1e-6)
    assert -2 * model.score_samples(rows).sum() == pytest.approx(model.bic_, abs=0.1 * abs(model.bic_))


def test_spherical_covariances_that_are_asked_for_are_those_of_the_table():
    data = {name: x * FACTORS for name, x in moved_clients(False).items()}
    model = OpenMixture("gaussians", covariance_types="spherical", site_offsets=False, random_state=0).fit(data)
    assert model.covariance_type_ == "spherical"
    assert np.array_equal(model.column_scale_, np.ones(3))
