"""BayesianRegression with groups: a linear model with a random offset for every value of a column, whoever holds the rows."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import cho_factor, cho_solve

import unpooled as up
from unpooled.errors import BadParameter
from unpooled.metrics import regression as metrics

DAYS = 120


@pytest.fixture(name="rows", scope="module")
def rows_():
    """Days of unlike size, each with an offset of its own; column 2 is the same all day. Far from the origin."""
    rng = np.random.default_rng(0)
    day = rng.choice(DAYS, size=1500, p=rng.dirichlet(np.ones(DAYS)))
    marks = np.round(1000 + 50 * rng.normal(size=DAYS), 1)
    x = np.column_stack([rng.normal(size=(1500, 2)) + 500, marks[day]])
    y = 1e4 + x @ [2.0, -1.0, 0.01] + (2.0 * rng.normal(size=DAYS))[day] + 0.5 * rng.normal(size=1500)
    return x, y, rng.integers(0, 25, size=1500)


@pytest.mark.parametrize("options", [{}, {"degree": 2}, {"fit_intercept": False}, {"standardize": False}], ids=str)
def test_any_split_gives_the_pooled_fit(rows, options):
    x, y, client = rows
    model = lambda: up.BayesianRegression(group_by=2, recalibrate=True, **options)  # noqa: E731
    pooled = model().fit(x, y)
    assert len(pooled.design_.groups.keys) > 60
    for mode in ("auto", "stacked", "one by one"):
        clients = {f"c{c}": (x[client == c], y[client == c]) for c in range(25)}
        other = model().fit(up.federate(clients, mode=mode))
        for a, b in zip(pooled.predict(x, return_std=True), other.predict(x, return_std=True)):
            assert_allclose(a, b, rtol=1e-8)
        for a, b in zip(pooled.interval(x, 0.8), other.interval(x, 0.8)):
            assert_allclose(a, b, rtol=1e-8)
        assert other.log_marginal_likelihood_ == pytest.approx(pooled.log_marginal_likelihood_, rel=1e-10)


def test_it_is_the_mixed_model_of_the_pooled_rows(rows):
    """Generalised least squares with dense matrices, at the variances that were found."""
    x, y, client = rows
    model = up.BayesianRegression(group_by=2).fit(x, y, by=client)
    post, group = model.posterior, model._group(x)
    same = (group[:, None] == group) & (group[:, None] >= 0)
    z = (x - x.mean(0)) / x.std(0)
    covariance = post.prior_variance * z @ z.T + post.noise_variance * (np.eye(len(y)) + post.group_ratio * same)
    solve = cho_factor(covariance)
    level = cho_solve(solve, y).sum() / cho_solve(solve, np.ones(len(y))).sum()
    weights = post.prior_variance * z.T @ cho_solve(solve, y - level) / x.std(0)
    assert_allclose(model.coef_, weights, rtol=1e-7)
    assert_allclose(model.intercept_, level - x.mean(0) @ weights, rtol=1e-8)
    mean = level + (covariance - post.noise_variance * np.eye(len(y))) @ cho_solve(solve, y - level)
    assert_allclose(model.predict(x), mean, rtol=1e-9)


def test_days_that_were_seen_are_predicted_better_and_intervals_hold(rows):
    x, y, client = rows
    fit = np.random.default_rng(5).random(len(y)) < 0.7
    errors = {}
    for by in (None, 2):
        model = up.BayesianRegression(group_by=by, recalibrate=True).fit(x[fit], y[fit], by=client[fit])
        errors[by] = metrics.rmse(y[~fit], model.predict(x[~fit]))
        assert metrics.coverage(y[~fit], *model.interval(x[~fit], 0.9)) == pytest.approx(0.9, abs=0.05)
    assert errors[2] < 0.7 < 1.5 < errors[None]
    assert (
        model.predict(x[:1] + np.array([0, 0, 0.05]), return_std=True)[1] > 2 * model.predict(x[:1], return_std=True)[1]
    )


def test_what_is_asked(rows):
    x, y, client = rows
    asked = {}
    for by in (None, 2):
        fed = up.federate(x, y, by=client)
        up.BayesianRegression(group_by=by).fit(fed)
        asked[by] = [e.question.rpartition(".")[2] for e in fed.journal.exchanges]
    assert asked[None] == ["sums", "statistics"]
    assert asked[2] == ["sums", "count", "statistics"]


def test_a_client_forgotten_was_never_there_and_intervals_for_new_clients_stand(rows):
    x, y, client = rows
    model = up.BayesianRegression(group_by=2, recalibrate="clients").fit(x, y, by=client)
    assert model.n_clients_checked_ == 25
    design, fed = model.design_, up.federate(x[client != 3], y[client != 3])
    model.forget("3")
    again = up.BayesianRegression(group_by=2).fit(x, y)
    again._settle(design, again._ask(fed))
    assert_allclose(model.predict(x), again.predict(x), rtol=1e-8)


def test_a_column_is_named_as_well_as_counted(rows):
    x, y, client = rows
    frame = pd.DataFrame(x, columns=["age", "dose", "day"])
    named = up.BayesianRegression(group_by="day").fit(frame, y, by=client)
    assert_allclose(named.predict(frame), up.BayesianRegression(group_by=2).fit(x, y, by=client).predict(x))
    with pytest.raises(BadParameter, match="group_by='dya' is not a column of the data: did you mean 'day'"):
        up.BayesianRegression(group_by="dya").fit(frame, y, by=client)
    words = frame.assign(day=(frame.day > 1000).map({True: "sat", False: "sun"}))
    with pytest.raises(BadParameter, match="group_by='day' is a column of texts"):
        up.BayesianRegression(group_by="day").fit(words, y, by=client)


@pytest.mark.parametrize(
    ("by", "says"),
    [(3, "group_by=3 is not a column: rows have 3"), ("auto", "group_by='auto' must be"), (-1, "group_by=-1")],
)
def test_a_column_that_is_not_there_is_refused(rows, by, says):
    with pytest.raises(BadParameter, match=says):
        up.BayesianRegression(group_by=by).fit(*rows[:2])


def test_torch_is_never_imported():
    code = (
        "import sys, numpy as np, unpooled as up\n"
        "up.BayesianRegression(group_by=1).fit(np.random.rand(50, 2), np.random.rand(50))\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
