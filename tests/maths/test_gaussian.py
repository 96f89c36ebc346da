"""Packing, shapes, factors and parameter counts of Gaussians."""

import numpy as np
import pytest
from mixtures import SHAPES, close, natural, random_mixture
from sklearn.mixture import GaussianMixture

from unpooled.maths import gaussian


def test_the_triangle_goes_by_rows():
    m = np.array([[1.0, 2, 4], [2, 3, 5], [4, 5, 6]])
    np.testing.assert_array_equal(gaussian.pack_triangle(m), [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(gaussian.unpack_triangle(gaussian.pack_triangle(m)), m)
    stack = np.stack([m, 2 * m])[None]
    np.testing.assert_array_equal(gaussian.unpack_triangle(gaussian.pack_triangle(stack)), stack)


@pytest.mark.parametrize("shape", SHAPES)
def test_layouts(shape):
    params = random_mixture(np.random.default_rng(0), 3, 4, shape)
    full = gaussian.full_covs(params, shape)
    assert full.shape == (3, 4, 4)
    np.testing.assert_allclose(natural(full, shape), params.covs, rtol=1e-12)
    np.testing.assert_array_equal(gaussian.pack_covs(gaussian.unpack_covs(params.covs, shape), shape), params.covs)


@pytest.mark.parametrize("shape", SHAPES)
def test_factors_and_counts_are_those_of_scikit_learn(shape):
    x = np.random.default_rng(1).normal(size=(200, 3))
    model = GaussianMixture(2, covariance_type=shape, random_state=0).fit(x)
    factors = gaussian.precisions_cholesky(model.covariances_, shape)
    close([factors, gaussian.precisions(factors, shape)], [model.precisions_cholesky_, model.precisions_], 1e-10)
    assert gaussian.n_parameters(2, 3, shape) == model._n_parameters()


@pytest.mark.parametrize("shape", SHAPES)
def test_mean_scatter(shape):
    rng = np.random.default_rng(2)
    n, x = rng.uniform(1, 5, 3), rng.normal(size=(3, 4))
    outer = np.einsum("ki,kj,k->kij", x, x, 1 / n)
    expected = natural(outer * (3 if shape == "tied" else 1), shape)
    np.testing.assert_allclose(gaussian.mean_scatter(n, x, shape), expected, rtol=1e-12)


def test_the_component_that_has_no_factor_is_named():
    covs = np.stack([np.eye(2), np.eye(2), -np.eye(2)])
    with pytest.raises(ValueError, match="component 2 is not positive definite: raise reg_covar"):
        gaussian.cholesky(covs)
    covs[2] = np.nan
    with pytest.raises(ValueError, match="component 2"):
        gaussian.cholesky(covs)


def test_a_device_that_fails_is_not_called_indefinite(monkeypatch):
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="component 1 is not positive definite"):
        gaussian.cholesky(torch.stack([torch.eye(2), -torch.eye(2)]))

    def broken(covs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch.linalg, "cholesky", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        gaussian.cholesky(torch.eye(2)[None])
