"""A covariance without an inverse is repaired relative to the data, and a run goes on."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm.covariances import MIN_VARIANCE, repaired
from unpooled.models.fedgmm.estimator import FedGMM


def params_of(covs, shape):
    return Params(np.full(2, 0.5), np.zeros((2, 2)), gaussian.pack_covs(np.asarray(covs, float), shape))


def test_positive_definite_covariances_stay_as_they_are():
    params = params_of([[[2, 1], [1, 2]], [[1e-20, 0], [0, 1]]], "full")
    assert repaired(params, "full", np.ones(2)) is params


def test_only_the_broken_covariance_is_repaired_in_units_of_the_data():
    scale = np.array([1e3, 1e-2])
    singular = np.outer(scale, scale)
    params = params_of([np.diag(scale**2), singular - 1e-9 * np.diag(scale**2)], "full")
    fixed = gaussian.unpack_covs(repaired(params, "full", scale).covs, "full")
    np.testing.assert_array_equal(fixed[0], np.diag(scale**2))
    values = np.linalg.eigvalsh(fixed[1] / np.outer(scale, scale))
    np.testing.assert_allclose(values, [MIN_VARIANCE, 2], rtol=1e-3)


@pytest.mark.parametrize(("covs", "shape"), [([[1, -1], [2, 3]], "diag"), ([-1, 2], "spherical")])
def test_non_positive_variances_are_raised(covs, shape):
    scale = np.array([10.0, 10.0])
    fixed = repaired(params_of(covs, shape), shape, scale).covs
    assert fixed.min() == pytest.approx(100 * MIN_VARIANCE)
    assert fixed.max() == max(np.ravel(covs))


def test_values_that_are_not_finite_are_replaced_by_the_variances_of_the_data():
    fixed = repaired(params_of([np.full((2, 2), np.nan), np.eye(2)], "full"), "full", np.array([2.0, 3.0]))
    np.testing.assert_array_equal(gaussian.unpack_covs(fixed.covs, "full")[0], np.diag([4.0, 9.0]))


def test_a_run_over_columns_that_repeat_each_other_ends_in_probabilities():
    """Without `reg_covar` the second column makes every covariance singular."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1)) @ [[1.0, 2.0]]
    y = (x[:, 0] + rng.normal(size=300) > 0).astype(int)
    model = FedGMM(2, 2, max_iter=8, reg_covar=0.0, random_state=0)
    model.fit({f"c{i}": (x[i::3], y[i::3]) for i in range(3)})
    proba = model.predict_proba(x)
    assert proba.min() >= 0
    assert proba.max() <= 1
    assert log_loss(y, proba) < 0.6
