"""Bayesian regression over clients: equal to the pooled fit, to scikit-learn's, and to a fit without those it forgot."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.utils.estimator_checks import parametrize_with_checks

import unpooled as up
from unpooled.errors import BadData, BadParameter, DataWarning


@pytest.fixture(name="rows", scope="module")
def rows_():
    x, y = load_diabetes(return_X_y=True)
    return x[:, :6] * 100 + 1e4, y, np.random.default_rng(0).integers(0, 9, len(y))  # far from the origin


def clients_of(x, y, by):
    return {f"c{c}": (x[by == c], y[by == c]) for c in np.unique(by)}


@pytest.mark.parametrize("degree", [1, 2])
def test_any_split_gives_the_pooled_fit(rows, degree):
    x, y, by = rows
    pooled = up.BayesianRegression(degree, recalibrate=True).fit(x, y)
    for split in (by, by % 2, np.arange(len(y))):
        other = up.BayesianRegression(degree, recalibrate=True).fit(clients_of(x, y, split))
        for a, b in zip(pooled.predict(x, return_std=True), other.predict(x, return_std=True)):
            np.testing.assert_allclose(a, b, rtol=1e-8)
        np.testing.assert_allclose(other.interval(x, 0.8), pooled.interval(x, 0.8), rtol=1e-8)
        assert other.log_marginal_likelihood_ == pytest.approx(pooled.log_marginal_likelihood_, rel=1e-10)


@pytest.mark.parametrize("mode", ["stacked", "one by one"])
def test_how_clients_run_does_not_matter(rows, mode):
    x, y, by = rows
    merged = up.BayesianRegression(2, recalibrate=True).fit(clients_of(x, y, by))
    other = up.BayesianRegression(2, recalibrate=True).fit(up.federate(clients_of(x, y, by), mode=mode))
    np.testing.assert_allclose(other.interval(x, 0.8), merged.interval(x, 0.8), rtol=1e-8)


def test_it_is_bayesian_ridge_without_intercept(rows):
    x, y, by = rows
    x = x - x.mean(0)
    ours = up.BayesianRegression(fit_intercept=False, standardize=False).fit(x, y, by=by)
    peer = BayesianRidge(
        alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, fit_intercept=False, tol=1e-12, max_iter=3000, compute_score=True
    ).fit(x, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-6)
    assert ours.log_marginal_likelihood_ == pytest.approx(peer.scores_[-1], rel=1e-9)
    for a, b in zip(ours.predict(x, return_std=True), peer.predict(x, return_std=True)):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_it_is_the_gaussian_process_of_its_features(rows):
    x, y, by = rows
    x = (x - x.mean(0)) / 5
    ours = up.BayesianRegression(fit_intercept=False, standardize=False, noise=3000.0, prior=1.0).fit(x, y, by=by)
    kernel = DotProduct(1e-9, sigma_0_bounds="fixed") + WhiteKernel(3000.0, noise_level_bounds="fixed")
    gp = GaussianProcessRegressor(kernel, optimizer=None).fit(x, y)
    for a, b in zip(ours.predict(x[:9], return_std=True), gp.predict(x[:9], return_std=True)):
        np.testing.assert_allclose(a, b, rtol=1e-7)
    assert ours.log_marginal_likelihood_ == pytest.approx(gp.log_marginal_likelihood_value_, rel=1e-8)


def test_coefficients_predict(rows):
    x, y, by = rows
    model = up.BayesianRegression().fit(x, y, by=by)
    np.testing.assert_allclose(x @ model.coef_ + model.intercept_, model.predict(x), rtol=1e-9)


def test_forgetting_is_exact(rows):
    x, y, by = rows
    clients = clients_of(x, y, by)
    without = up.BayesianRegression().fit({k: v for k, v in clients.items() if k != "c3"})
    for forgotten in (
        up.BayesianRegression().fit(clients).forget("c3"),
        up.BayesianRegression().fit(clients).forget("c3", clients["c3"]),
    ):
        np.testing.assert_allclose(forgotten.predict(x), without.predict(x), rtol=1e-7)
        np.testing.assert_allclose(
            forgotten.predict(x, return_std=True)[1], without.predict(x, return_std=True)[1], rtol=1e-6
        )
        assert forgotten.log_marginal_likelihood_ == pytest.approx(without.log_marginal_likelihood_, rel=1e-8)


def test_rows_that_come_later_are_as_good_as_rows_that_were_there(rows):
    x, y, by = rows
    early = by < 4
    model = up.BayesianRegression().partial_fit(x[early], y[early], by=by[early]).partial_fit(x[~early], y[~early])
    whole = up.BayesianRegression().fit(x, y, by=by)
    np.testing.assert_allclose(model.predict(x), whole.predict(x), rtol=1e-7)


def test_a_loaded_model_predicts_and_forgets(rows, tmp_path):
    x, y, by = rows
    clients = clients_of(x, y, by)
    model = up.BayesianRegression(2, recalibrate=True).fit(clients)
    again = up.load(model.save(tmp_path))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(again.interval(x, 0.7), model.interval(x, 0.7))
    with pytest.raises(BadParameter, match="give its data"):
        again.forget("c1")
    np.testing.assert_array_equal(again.forget("c1", clients["c1"]).predict(x), model.forget("c1").predict(x))


def test_forget_takes_a_name_and_does_not_print_rows(rows):
    clients = clients_of(*rows)
    model = up.BayesianRegression().fit(clients)
    with pytest.raises(BadParameter, match="client should be the name of a client, not a dict: give its rows as data="):
        model.forget({"c1": clients["c1"]})


def test_forget_names_the_clients_that_there_are():
    x = np.arange(12.0)[:, None]
    model = up.BayesianRegression().fit(x, 2 * x[:, 0] + np.sin(x[:, 0]), by=np.repeat(["lyon", "nice"], 6))
    with pytest.raises(
        BadParameter, match=r"client 'bonn' is not in the federation to be asked \(known: 'lyon', 'nice'\)"
    ):
        model.forget("bonn")


def test_many_outputs_are_fitted_as_if_alone(rows):
    x, y, by = rows
    both = up.BayesianRegression().fit(x, np.stack([y, x[:, 0] - 0.1 * y], 1), by=by)
    alone = up.BayesianRegression().fit(x, y, by=by)
    mean, std = both.predict(x, return_std=True)
    assert mean.shape == (len(y), 2)
    np.testing.assert_allclose(mean[:, 0], alone.predict(x), rtol=1e-9)
    np.testing.assert_allclose(std[:, 0], alone.predict(x, return_std=True)[1], rtol=1e-8)
    assert both.sample_y(x[:4], 3).shape == (4, 2, 3)
    assert alone.sample_y(x[:4], 3).shape == (4, 3)


def test_recalibrated_intervals_cover_skewed_noise():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 2))
    y = x.sum(1) + np.where(rng.random(6000) < 0.9, 1, 8) * rng.exponential(size=6000)
    fit, new = slice(0, 3000), slice(3000, 6000)
    inside = {}
    for recalibrate in (False, True):
        model = up.BayesianRegression(recalibrate=recalibrate).fit(x[fit], y[fit], by=np.arange(3000) % 11)
        lower, upper = model.interval(x[new], 0.8)
        inside[recalibrate] = np.mean((y[new] > lower) & (y[new] < upper))
    assert abs(inside[True] - 0.8) < 0.02 < abs(inside[False] - 0.8)


def test_weights_count_rows(rows):
    x, y, _ = rows
    w = np.where(np.arange(len(y)) % 3 == 0, 2.0, 1.0)
    twice = np.concatenate([np.arange(len(y)), np.flatnonzero(w == 2)])
    weighted, repeated = (
        up.BayesianRegression().fit(x, y, sample_weight=w),
        up.BayesianRegression().fit(x[twice], y[twice]),
    )
    np.testing.assert_allclose(weighted.predict(x), repeated.predict(x), rtol=1e-7)


def test_missing_values_are_filled_in_with_the_mean_of_all_clients(rows):
    x, y, by = rows
    gaps = x.copy()
    gaps[::7, 2] = np.nan
    with pytest.warns(DataWarning, match="64 missing values, most in column '2', are taken to be their column's mean"):
        model = up.BayesianRegression().fit(clients_of(gaps, y, by))
    filled = np.where(np.isnan(gaps), np.nanmean(gaps, 0), gaps)
    peer = up.BayesianRegression().fit(filled, y)
    np.testing.assert_allclose(model.predict(gaps), peer.predict(filled), rtol=1e-8)
    with pytest.raises(BadData, match="64 values are missing, most in column '2'"):
        up.BayesianRegression(missing="refuse").fit(clients_of(gaps, y, by))


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        ({"a": (np.eye(3), np.ones(3))}, {}, "all 3 targets are 1: there is nothing to learn from constant y"),
        ({"a": (np.eye(3), np.array(list("abc")))}, {}, "targets that are not numbers"),
        ({"a": np.eye(3)}, {}, "has no targets"),
        ({"a": (np.eye(1), np.ones(1))}, {}, "1 sample to fit: at least 2"),
        ({"a": (np.eye(3), np.arange(3.0)), "b": (np.eye(2), np.arange(2.0))}, {}, "the same"),
        ({"a": (np.eye(3), np.arange(3.0))}, {"degree": 0}, "degree=0 must be"),
        ({"a": (np.eye(3), np.arange(3.0))}, {"noise": 1.0}, "given together"),
        ({"a": (np.eye(3), np.arange(3.0))}, {"missing": "drop"}, "use one of 'impute', 'refuse'"),
    ],
)
def test_bad_input_is_one_sentence(data, options, says):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        with pytest.raises((BadData, BadParameter), match=says):
            up.BayesianRegression(**options).fit(data)


def test_a_client_with_one_row_is_welcome(rows):
    x, y, _ = rows
    model = up.BayesianRegression().fit({"one": (x[:1], y[:1]), "others": (x[1:], y[1:])})
    np.testing.assert_allclose(model.predict(x), up.BayesianRegression().fit(x, y).predict(x), rtol=1e-8)


def test_torch_is_never_imported():
    code = (
        "import sys, numpy as np, unpooled as up\n"
        "m = up.BayesianRegression(2, recalibrate=True).fit(np.random.rand(50, 2), np.random.rand(50))\n"
        "m.interval(np.random.rand(3, 2), 0.9)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@parametrize_with_checks([up.BayesianRegression()])
def test_it_is_a_scikit_learn_regressor(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        check(estimator)
