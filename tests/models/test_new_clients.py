"""Intervals for clients never seen: whole clients are left out, exactly, and only check what the others fit."""

import numpy as np
import pytest
from cut_run import resumed
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.errors import BadParameter, DataWarning
from unpooled.maths import bayes_linear, calibration
from unpooled.metrics.regression import coverage
from unpooled.models.fedbnr.held_out_clients import choose

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


def test_a_quantile_for_a_client_to_come_leaves_room_for_it():
    counts = calibration.histogram(np.random.default_rng(0).normal(size=(1000, 1)), np.ones(1000))
    rows, many, nine, few = (calibration.quantile(counts, np.array([0.95]), m)[0, 0] for m in (0, 1000, 20, 3))
    assert_allclose(many, rows, rtol=1e-12)
    assert rows < nine < few <= 6.0
    share = (0.95 * (1 + 1 / 20) - 0.5 / 20) * 1000  # rows below it
    assert_allclose(calibration.quantile(counts, np.array([(share + 0.5) / 1001]))[0, 0], nine, rtol=1e-9)


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


@pytest.mark.filterwarnings("ignore:clients held out")
@pytest.mark.parametrize("kernel", ["exact", "average"])
def test_clients_held_out_do_not_shape_the_kernel(kernel):
    x, y, by = made(1)
    how = {"n_frequencies": 15, "max_iter": 2, "random_state": 0, "recalibrate": "clients"}
    model = up.FedBNR(kernel, **how).fit(x, y, by=by)
    held = np.isin(by, model.held_clients_)
    assert len(model.held_clients_) == model.n_clients_checked_ == 10
    other = up.FedBNR(kernel, **how).fit(x, np.where(held, y[::-1] + 5, y), by=by)
    assert other.held_clients_ == model.held_clients_
    assert_allclose(other.design_.scaling.y_mean, y[~held].mean(), rtol=1e-10)
    alone = up.FedBNR(kernel, **how | {"recalibrate": False, "validation_fraction": 0.0, "max_iter": model.best_round_})
    alone.fit(x[~held], y[~held], by=by[~held])
    assert_allclose(model.design_.kernel.theta["log_scale"], alone.design_.kernel.theta["log_scale"], rtol=1e-7)
    assert model.stats_.n == len(y)  # but they are in the last layer


@pytest.mark.filterwarnings("ignore:clients held out")
def test_intervals_cover_clients_never_seen():
    x, y, by = made(2, clients=60, between=2.0)
    unseen = np.isin(by, [f"c{c}" for c in range(40, 60)])
    how = {"n_frequencies": 100, "max_iter": 30, "random_state": 0}
    covered = {}
    for kind in (True, "clients"):
        model = up.FedBNR(recalibrate=kind, **how).fit(x[~unseen], y[~unseen], by=by[~unseen])
        covered[kind] = coverage(y[unseen], *model.interval(x[unseen], 0.9))
    assert covered[True] < 0.75 < 0.9 <= covered["clients"]


@pytest.mark.filterwarnings("ignore:intervals for clients never seen")
def test_where_nothing_carries_over_it_is_said():
    x, y, by = made(5, clients=12, between=2.0)
    model = up.FedBNR(recalibrate="clients", n_frequencies=50, max_iter=2, random_state=0)
    with pytest.warns(DataWarning, match="what was learned does not carry over to clients never seen"):
        model.fit(x, y, by=by)
    best = model.history_[model.best_round_ - 1]
    held = np.isin(by, model.held_clients_)
    assert_allclose(best["val_spread"], np.sqrt(np.mean((y[held] - y[~held].mean()) ** 2)), rtol=1e-8)
    assert best["val_rmse"] > best["val_spread"]


def test_a_saved_model_keeps_its_intervals(tmp_path):
    x, y, by = made(3)
    model = up.FedBNR(recalibrate="clients", n_frequencies=10, max_iter=1, random_state=0).fit(x, y, by=by)
    model.save(tmp_path)
    assert_allclose(up.load(tmp_path).interval(x[:5], 0.9), model.interval(x[:5], 0.9))


@pytest.mark.filterwarnings("ignore:clients held out")
def test_too_few_clients_are_said_so():
    x, y, by = made(4, clients=12)
    with pytest.warns(DataWarning, match="rest on 4 clients, and a 90 % interval needs 9"):
        up.FedBNR(recalibrate="clients", n_frequencies=10, max_iter=1, random_state=0).fit(x, y, by=by)
    with pytest.raises(BadParameter, match="there are 2: it needs 3"):
        up.FedBNR(recalibrate="clients", max_iter=1).fit(x, y, by=np.arange(len(y)) % 2)
    with pytest.raises(BadParameter, match="there is only one"):
        up.BayesianRegression(recalibrate="clients").fit(x, y)
    with pytest.raises(BadParameter, match="leave out server_data"):
        up.FedBNR(recalibrate="clients", server_data=(x, y)).fit(x, y, by=by)
    for model in (up.FedBNR, up.BayesianRegression):
        with pytest.raises(BadParameter, match="recalibrate='client'"):
            model(recalibrate="client").fit(x, y, by=by)


def test_the_choice_depends_on_names_and_seed_alone():
    names = [f"c{c}" for c in range(100)]
    assert choose(names, 0.1, 3) == choose(names[::-1], 0.1, 3) != choose(names, 0.1, 4)
    assert [len(choose(names, share, 0)) for share in (0.25, 0.01)] == [25, 10]
    assert len(choose(names[:9], 0.1, 0)) == 3


@pytest.mark.filterwarnings("ignore:clients held out")
def test_a_run_cut_in_the_middle_holds_out_the_same_clients():
    x, y, by = made(6)
    make = lambda: up.FedBNR(recalibrate="clients", n_frequencies=10, max_iter=6, random_state=0)  # noqa: E731
    whole = make().fit(x, y, by=by)
    other = resumed(make, lambda: up.federate(x, y, by=by), 3)
    assert other.held_clients_ == whole.held_clients_
    np.testing.assert_array_equal(other.interval(x, 0.9), whole.interval(x, 0.9))


def test_too_few_clients_held_out_to_be_asked_apart_are_one_sentence():
    x, y, by = made(0, clients=12)
    fed = up.federate(x, y, by=by, min_clients=5)
    with pytest.raises(BadParameter, match="asks 4 clients apart from the other 8: lower min_clients=5 to 4"):
        up.FedBNR(recalibrate="clients", random_state=0).fit(fed)
