"""When FedEM says that it has converged: what EM would still gain, not what one step gains."""

import numpy as np
import pytest

import unpooled as up
from unpooled.models.fedem.convergence import _still_to_gain


def test_gains_that_fall_by_a_factor_add_up():
    gains = 0.01 * 0.9 ** np.arange(6)
    np.testing.assert_allclose(_still_to_gain(gains), gains[-1] * 0.9 / 0.1)


def test_gains_that_do_not_fall_have_no_end():
    assert _still_to_gain(np.array([1e-4, 1e-4, 1.1e-4])) == np.inf
    assert _still_to_gain(np.array([1e-3, 1e-6, 1e-12])) == 0.0


@pytest.mark.parametrize("solver", ["fedem", "vr-fedem"])
def test_a_fit_that_has_converged_gains_little_from_exact_em(solver):
    rng = np.random.default_rng(3)
    means = np.array([[0.0, 0.0], [1.5, 0.5], [0.5, 2.5]])  # close together: EM is slow
    x = means[rng.integers(3, size=400)] + rng.normal(size=(400, 2)) * [0.8, 0.6]
    by = rng.integers(8, size=400)
    options = {"random_state": 1, "init_params": "random", "max_iter": 120}
    exact = up.GaussianMixture(3, **options).fit(x)
    model = up.GaussianMixture(3, solver=solver, fraction=0.5, **options).fit(x, by=by)
    start = {"weights_init": model.weights_, "means_init": model.means_, "precisions_init": model.precisions_}
    on = up.GaussianMixture(3, tol=1e-6, max_iter=300, **start).fit(x)
    assert model.converged_
    assert model.score(x) > exact.score(x) - 1e-3  # which stops by the same tol
    assert -1e-6 < on.score(x) - model.score(x) < 0.02  # what EM still gains at a thousandth of tol
