"""The server's steps: penalised minima, and what has no answer."""

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, Ridge

from unpooled.errors import BadData
from unpooled.models.glm import newton
from unpooled.models.glm.newton import Evaluated, Penalty


def moments(d=5, n=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ (np.eye(d) + 0.4)
    y = x @ np.array([2.0, -1.0, 0.0, 0.0, 0.3]) + rng.normal(size=n)
    return x, y


def test_a_ridge_step_is_scikit_learns():
    x, y = moments()
    found = newton.solve(x.T @ x, x.T @ y, np.zeros(5), Penalty(np.full(5, 3.0), np.zeros(5)))
    np.testing.assert_allclose(found, Ridge(alpha=3.0, fit_intercept=False).fit(x, y).coef_, rtol=1e-12)


def test_an_elastic_step_is_scikit_learns_from_any_start():
    x, y = moments()
    pen = Penalty(np.full(5, 200 * 0.15), np.full(5, 200 * 0.15))
    theirs = ElasticNet(alpha=0.3, l1_ratio=0.5, fit_intercept=False, tol=1e-14, max_iter=10**5).fit(x, y).coef_
    assert (theirs == 0).any()
    for start in (np.zeros(5), np.full(5, 2.0)):
        score = x.T @ (y - x @ start)
        np.testing.assert_allclose(newton.solve(x.T @ x, score, start, pen), theirs, rtol=1e-9, atol=1e-12)


def test_units_of_columns_do_not_matter():
    x, y = moments()
    units = np.array([1e-8, 1.0, 1e8, 1e3, 1e-3])
    none = Penalty(np.zeros(5), np.zeros(5))
    plain = newton.solve(x.T @ x, x.T @ y, np.zeros(5), none)
    z = x * units
    np.testing.assert_allclose(newton.solve(z.T @ z, z.T @ y, np.zeros(5), none) * units, plain, rtol=1e-10)


def test_a_step_that_makes_things_worse_is_halved():
    path = newton.begin(np.array([4.0]))._replace(base=np.array([0.0]), objective=1.0, n=9.0)
    none = Penalty(np.zeros(1), np.zeros(1))
    worse = Evaluated(np.eye(1), np.ones(1), objective=2.0, n=9.0, unit=1.0)
    after = newton.advance(path, worse, none)
    assert after.at == 2.0
    assert after.halvings == 1
    assert newton.advance(path, worse._replace(objective=0.5), none).halvings == 0
    assert newton.advance(path, worse._replace(objective=np.inf), none).halvings == 1
    assert newton.advance(path, worse._replace(n=8.0), none).halvings == 0  # of other rows


def test_dependent_columns_are_named():
    x, _ = moments()
    z = np.column_stack([np.ones(200), x[:, :3], x[:, 0] + 2 * x[:, 2]])
    names = ["intercept", "a", "b", "c", "d"]
    with pytest.raises(BadData, match="column 'd' is a combination of 'a', 'c': leave it out, or penalise"):
        newton.check_independent(z.T @ z, names, np.zeros(5), "penalise")
    newton.check_independent(z[:, :4].T @ z[:, :4], names[:4], np.zeros(4), "penalise")


def test_nearly_dependent_columns_are_not_refused():
    x, _ = moments()
    z = np.column_stack([x[:, 0], x[:, 0] + 1e-4 * x[:, 1]])
    newton.check_independent(z.T @ z, ["a", "b"], np.zeros(2), "penalise")


def test_a_direction_that_lost_its_curvature_is_named():
    first = np.diag([10.0, 20.0])
    newton.check_informed(np.diag([5.0, 0.2]), first, 100, ["a", "b"], "penalise")
    with pytest.raises(BadData, match=r"column 'b' separates the outcomes.*or penalise"):
        newton.check_informed(np.diag([5.0, 1e-4]), first, 100, ["a", "b"], "penalise")
