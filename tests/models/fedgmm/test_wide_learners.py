"""FedGMM with linear learners too wide for their second derivatives: steps by a bound end where Newton's do."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import unpooled as up
from unpooled.learners import newton
from unpooled.models.fedgmm import bounded


def problem(classes, n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * [1.0, 2.0, 0.5] + [0.0, 5.0, -1.0]
    return x, rng.integers(classes, size=n)


def log_p(theta, x, classes):
    one = np.c_[x, np.ones(len(x))]
    return log_softmax(theta.reshape(classes, -1) @ one.T, axis=0)[None]  # (1, c, n)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_gradient_is_that_of_the_log_likelihood(classes):
    x, y = problem(classes)
    centre = x.mean(0)
    theta = np.random.default_rng(1).normal(size=(classes, 4)) * 0.2
    found = bounded.gradient(log_p(theta, x, classes), x, y, np.ones((len(y), 1)), centre)[0]

    def likelihood(free):  # coefficients of centred columns, the first class at 0
        scores = np.concatenate([np.zeros((1, 4)), free.reshape(-1, 4)])
        return log_p(scores, x - centre, classes)[0][y, np.arange(len(y))].sum()

    free = theta[1:] - theta[:1]
    free[:, -1] += free[:, :-1] @ centre
    assert_allclose(found, approx_fprime(free.ravel(), likelihood, 1e-6), rtol=1e-3, atol=1e-2)
    assert_allclose(found, newton.curvature(log_p(theta, x, classes), x, y, np.ones((len(y), 1)), centre)[0][0])


@pytest.mark.parametrize("classes", [2, 4])
def test_steps_never_lower_the_penalised_likelihood_and_end_at_scikit_learns(classes):
    x, y = problem(classes)
    centre, one = x.mean(0), np.c_[x - x.mean(0), np.ones(len(x))]
    prior, second = np.array([1.0, 1.0, 1.0, 1e-9]), (one.T @ one / len(x))[None]
    theta, values = np.zeros((1, classes * 4)), []
    for _ in range(200):
        scores = theta.reshape(classes, 4)
        apart = scores[:, :3] - (scores[:, :3].mean(0) if classes > 2 else scores[:1, :3])
        values.append(log_p(theta[0], x, classes)[0][y, np.arange(len(y))].sum() - 0.5 * (apart**2).sum())
        up_hill = bounded.gradient(log_p(theta[0], x, classes), x, y, np.ones((len(y), 1)), centre)
        theta = bounded.step(theta, up_hill, np.array([len(x)]), prior, second, centre)
    assert np.diff(values).min() > -1e-9
    theirs = LogisticRegression(tol=1e-10, max_iter=5000).fit(x, y)
    assert_allclose(np.exp(log_p(theta[0], x, classes)[0].T), theirs.predict_proba(x), atol=1e-5)


def test_a_text_of_many_levels_does_not_make_it_worse_than_pooled_rows():
    rng = np.random.default_rng(12)
    n, towns, classes = 1200, 210, 5
    town, x = rng.integers(towns, size=n), rng.normal(size=n)
    scores = 0.7 * rng.normal(size=(towns, classes))[town] + np.outer(x, rng.normal(size=classes))
    y = (scores + rng.gumbel(size=scores.shape)).argmax(1).astype(str)
    table = pd.DataFrame({"town": [f"t{i:03d}" for i in town], "x": x, "y": y, "site": rng.integers(4, size=n)})
    new = np.arange(n) % 4 == 0
    rows = pd.get_dummies(table[["town", "x"]]).to_numpy(float)
    pooled = LogisticRegression(max_iter=2000).fit(rows[~new], y[~new])
    levels = {"town": {"levels": sorted(set(table.town))}}
    model = up.FedGMM(2, 1, random_state=0).fit(up.federate(table[~new], by="site", label="y", columns=levels))
    assert not newton.fits(model.n_features_in_, classes)
    ours = log_loss(y[new], model.predict_proba(table[new]))
    assert ours < 1.03 * log_loss(y[new], pooled.predict_proba(rows[new]))
