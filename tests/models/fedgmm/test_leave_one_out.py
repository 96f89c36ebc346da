"""The density of a row under the mixture without it: exact for one Gaussian of any covariance type, and what thresholds need."""

import numpy as np
import pytest

from unpooled.datasets import classification
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm.estimator import FedGMM
from unpooled.models.fedgmm.leave_one_out import log_density_without
from unpooled.models.fedgmm.weighted_e_step import log_densities

SHAPES = pytest.mark.parametrize("shape", ["full", "tied", "diag", "spherical"])


def one_gaussian(x, shape):
    covs = gaussian.reshape_covs(np.cov(x.T, bias=True)[None], shape)
    return Params(np.ones(1), x.mean(0)[None], gaussian.pack_covs(covs, shape))


@SHAPES
def test_it_is_the_density_under_the_gaussian_fitted_again_without_the_row(shape):
    x = np.random.default_rng(0).normal(size=(15, 3)) * [1, 5, 0.2] + 7
    n = np.array([15.0])
    found = log_density_without(one_gaussian(x, shape), x, np.ones(15), np.ones(1), shape, n, 15.0)
    for i, value in enumerate(found):
        fitted = one_gaussian(np.delete(x, i, 0), shape)
        np.testing.assert_allclose(value, log_densities(fitted, x[[i]], shape)[0, 0], rtol=1e-8)


@SHAPES
def test_for_well_separated_gaussians_it_is_nearly_an_m_step_without_the_row(shape):
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(12, 2)), rng.normal(size=(20, 2)) + 30])
    covs = gaussian.pack_covs(gaussian.reshape_covs(np.tile(np.eye(2), (2, 1, 1)), shape), shape)
    params = Params(np.full(2, 0.5), np.array([[0.0, 0.0], [30.0, 30.0]]), covs)

    def fitted(rows):
        return mixture.m_step(params, mixture.e_step(params, rows, np.ones(len(rows)), shape), shape, 0.0)

    whole = fitted(x)
    found = log_density_without(whole, x, np.ones(32), whole.weights, shape, 32 * whole.weights, 32.0)
    for i in (0, 5, 20, 31):
        without = fitted(np.delete(x, i, 0))
        wanted = mixture.log_joint(without, x[[i]], shape).max(-1)[0]  # the other Gaussian is far away
        np.testing.assert_allclose(found[i], wanted, atol=1e-6)


def test_missing_values_are_left_out():
    x = np.random.default_rng(0).normal(size=(30, 3))
    holes = x.copy()
    holes[0, 2] = np.nan
    for shape in ("full", "diag"):
        params = one_gaussian(x, shape)
        found = log_density_without(params, holes, np.ones(30), np.ones(1), shape, np.array([30.0]), 30.0)
        covs = gaussian.full_covs(params, shape)[:, :2, :2]
        part = Params(np.ones(1), params.means[:, :2], gaussian.pack_covs(covs, "full"))
        part = part if shape == "full" else part._replace(covs=np.diagonal(covs, axis1=1, axis2=2))
        alone = log_density_without(part, x[:, :2], np.ones(30), np.ones(1), shape, np.array([30.0]), 30.0)
        np.testing.assert_allclose(found[0], alone[0], rtol=1e-8)


def test_a_row_that_is_the_only_one_of_its_gaussian_has_a_low_but_finite_density():
    x = np.concatenate([np.random.default_rng(0).normal(size=(20, 2)), [[50.0, 50.0]]])
    covs = gaussian.pack_covs(np.stack([np.cov(x[:20].T), 1e-6 * np.eye(2)]), "full")
    params = Params(np.array([20, 1]) / 21, np.stack([x[:20].mean(0), x[20]]), covs)
    found = log_density_without(params, x, np.ones(21), params.weights, "full", np.array([20.0, 1.0]), 21.0)
    assert np.isfinite(found).all()
    assert found[20] < found[:20].min() - 50


def test_false_alarms_stay_near_the_wanted_rate_with_many_gaussians():
    """With as many parameters as rows, thresholds of the training densities would raise several times as many alarms."""
    task = classification.paper(clients=6, rows=250, d=8, spread=1.5, random_state=4)
    model = FedGMM(20, 2, max_iter=10, starts=("tied",), random_state=0).fit(task.train)
    rows = np.concatenate([x for x, _ in task.test.values()])
    train = np.concatenate([x for x, _ in task.train.values()])
    rate = model.is_novel(rows, 0.05).mean()
    training_threshold = np.quantile(model.novelty(train), 0.95)
    assert 0.02 < rate < 0.09
    assert (model.novelty(rows) > training_threshold).mean() > rate + 0.03
