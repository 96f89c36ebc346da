"""Intervals for clients never seen: whole clients are left out, exactly, and only check what the others fit."""

import numpy as np
import pytest
from cut_run import resumed
from numpy.testing import assert_allclose
from scipy.stats import f_oneway, t

import unpooled as up
from unpooled.errors import BadParameter, DataWarning
from unpooled.maths import bayes_linear, calibration
from unpooled.metrics.regression import coverage
from unpooled.models.regression.unseen_clients import ClientResiduals, client_quantiles, client_variance

CLIENTS, ROWS = 40, 30


def made(seed, clients=CLIENTS, between=0.6):
    """Clients with an offset of their own, which one column tells apart."""
    rng = np.random.default_rng(seed)
    offset = between * rng.normal(size=clients)
    by = np.repeat(np.arange(clients), ROWS)
    x = np.column_stack(
        [rng.uniform(-2, 2, len(by)), rng.uniform(-3, 3, clients)[by] + 0.05 * rng.normal(size=len(by))]
    )
    return x, np.sin(x[:, 0]) + offset[by] + 0.3 * rng.normal(size=len(by)), np.array([f"c{c}" for c in by])


@pytest.mark.parametrize("intercept", [True, False])
def test_rows_left_out_together_are_those_of_a_fit_without_them(intercept):
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(60, 4)) + 2, rng.normal(size=(60, 2))
    fit = lambda rows: bayes_linear.posterior(  # noqa: E731
        bayes_linear.statistics(z[rows], y[rows], np.ones(rows.sum())),
        intercept=intercept,
        noise=[0.5, 0.7],
        prior=[2.0, 1.0],
    )
    out = np.arange(60) < 25
    mean, variance = bayes_linear.left_out_together(fit(np.ones(60, dtype=bool)), z[out], y[out])
    expected = bayes_linear.predict(fit(~out), z[out])
    assert_allclose(mean, expected[0], rtol=1e-9, atol=1e-10)
    assert_allclose(variance, expected[1], rtol=1e-9)


def residuals_of(offset, seed=0):
    """The sums of residuals of 10 clients of 50 rows with offsets of a given standard deviation."""
    rng = np.random.default_rng(seed)
    r = (rng.normal(size=(10, 50)) + offset * rng.normal(size=(10, 1)))[..., None]  # (clients, rows, outputs)
    both = np.stack([r, np.abs(r)])  # (2, clients, rows, outputs)
    by_client = both.sum(2)
    none = np.zeros(1)
    sums = by_client.sum(1), (both**2).sum((1, 2)), (by_client**2 / 50).sum(1)
    return ClientResiduals(np.zeros((1, 1)), np.asarray(10.0), np.asarray(500.0), *sums, none, none)


def test_the_variance_of_a_new_client_rests_on_rows_or_on_clients():
    alike, some, far = (client_variance(residuals_of(offset)) for offset in (0.0, 1.0, 100.0))
    assert alike.dof[0] > 400
    assert_allclose((alike.sd, alike.between), [[1.0], [0.0]], atol=0.1)
    assert 9 < some.dof[0] < 100
    assert 0.1 < some.between[0] < 0.8
    assert_allclose(far.dof, 9.0, rtol=0.05)
    p = np.array([0.05, 0.95])
    rows = np.array([-1.0, 2.0])
    assert_allclose(client_quantiles(rows, p, far, 0), far.sd * t(far.dof).ppf(p), rtol=0.01)
    assert_allclose(client_quantiles(rows, p, alike, 0), rows, rtol=0.05)


def test_the_design_effect_is_the_f_ratio_of_residuals_by_client():
    x, y, by = made(0, clients=12)
    model = up.BayesianRegression(recalibrate="clients", noise=1.0, prior=4.0).fit(x, y, by=by)
    residuals = {}
    for name in np.unique(by):
        rest = up.BayesianRegression(noise=1.0, prior=4.0, standardize=False).fit(x[by != name], y[by != name])
        mean, std = rest.predict(x[by == name], return_std=True)
        residuals[name] = (y[by == name] - mean) / std
    same = up.BayesianRegression(recalibrate="clients", noise=1.0, prior=4.0, standardize=False).fit(x, y, by=by)
    both = f_oneway(*residuals.values()).statistic, f_oneway(*map(np.abs, residuals.values())).statistic
    assert_allclose(same.design_effect_, np.clip(max(both), 1.0, 30.0), rtol=1e-8)
    assert model.design_effect_ > 2


def test_bayesian_regression_judges_each_client_as_if_it_were_not_there():
    x, y, by = made(0, clients=12)
    how = {"standardize": False, "noise": 1.0, "prior": 4.0}
    model = up.BayesianRegression(recalibrate="clients", **how).fit(x, y, by=by)
    residuals = []
    for name in np.unique(by):
        mean, std = (
            up.BayesianRegression(**how).fit(x[by != name], y[by != name]).predict(x[by == name], return_std=True)
        )
        residuals.append((y[by == name] - mean) / std)
    assert_allclose(model.histogram_, calibration.histogram(np.concatenate(residuals)[:, None], np.ones(len(y))))
    assert model.n_clients_checked_ == 12


@pytest.mark.filterwarnings("ignore:clients left out")
@pytest.mark.parametrize("kernel", ["exact", "average"])
def test_fedbnr_judges_each_client_as_if_it_were_not_in_the_last_layer(kernel):
    x, y, by = made(1)
    how = {"n_frequencies": 15, "max_iter": 2, "random_state": 0}
    model = up.FedBNR(kernel, recalibrate="clients", **how).fit(x, y, by=by)
    same = up.FedBNR(kernel, recalibrate=True, **how).fit(x, y, by=by)
    assert_allclose(model.predict(x), same.predict(x), rtol=1e-10)  # the fit does not depend on it
    assert model.n_clients_checked_ == len(np.unique(by))
    assert model.histogram_.sum() == len(y)


@pytest.mark.filterwarnings("ignore:clients left out")
def test_intervals_cover_clients_never_seen():
    x, y, by = made(2, clients=60, between=2.0)
    unseen = np.isin(by, [f"c{c}" for c in range(40, 60)])
    how = {"n_frequencies": 100, "max_iter": 30, "random_state": 0}
    covered = {}
    for kind in (True, "clients"):
        model = up.FedBNR(recalibrate=kind, **how).fit(x[~unseen], y[~unseen], by=by[~unseen])
        covered[kind] = coverage(y[unseen], *model.interval(x[unseen], 0.9))
    assert covered[True] < 0.75 < 0.85 < covered["clients"]


@pytest.mark.filterwarnings("ignore:intervals for clients never seen")
def test_where_nothing_carries_over_it_is_said():
    rng = np.random.default_rng(5)
    by = np.repeat(np.arange(12), 30)
    x = rng.normal(size=(12, 3))[by]  # a client's rows are all at one point, with a mean of their own
    y = rng.normal(size=12)[by] + 0.1 * rng.normal(size=360)
    with pytest.warns(DataWarning, match="the model does not generalise to clients never seen; try BayesianRegression"):
        up.FedBNR(recalibrate="clients", n_frequencies=50, max_iter=2, random_state=0).fit(x, y, by=by)
    with pytest.warns(DataWarning, match="the model does not generalise to clients never seen; leave out columns"):
        up.BayesianRegression(degree=2, recalibrate="clients").fit(x, y, by=by)


def test_a_saved_model_keeps_its_intervals(tmp_path):
    x, y, by = made(3)
    model = up.FedBNR(recalibrate="clients", n_frequencies=10, max_iter=1, random_state=0).fit(x, y, by=by)
    model.save(tmp_path)
    assert_allclose(up.load(tmp_path).interval(x[:5], 0.9), model.interval(x[:5], 0.9))


@pytest.mark.filterwarnings("ignore:clients left out")
def test_too_few_clients_are_said_so():
    x, y, by = made(4, clients=12)
    with pytest.warns(DataWarning, match="rest on 4 clients: with fewer than 9"):
        up.FedBNR(recalibrate="clients", n_frequencies=10, max_iter=1, random_state=0).fit(
            x, y, by=np.arange(len(y)) % 4
        )
    for model in (up.FedBNR, up.BayesianRegression):
        with pytest.raises(BadParameter, match="there is only one"):
            model(recalibrate="clients").fit(x, y)
    with pytest.raises(BadParameter, match="leave out server_data"):
        up.FedBNR(recalibrate="clients", server_data=(x, y)).fit(x, y, by=by)
    for model in (up.FedBNR, up.BayesianRegression):
        with pytest.raises(BadParameter, match="recalibrate='client'"):
            model(recalibrate="client").fit(x, y, by=by)


@pytest.mark.filterwarnings("ignore:clients left out")
def test_a_run_cut_in_the_middle_has_the_same_intervals():
    x, y, by = made(6)
    make = lambda: up.FedBNR(recalibrate="clients", n_frequencies=10, max_iter=6, random_state=0)  # noqa: E731
    whole = make().fit(x, y, by=by)
    other = resumed(make, lambda: up.federate(x, y, by=by), 3)
    np.testing.assert_array_equal(other.interval(x, 0.9), whole.interval(x, 0.9))
