"""GLM equals statsmodels on the pooled rows, whatever the split; bad input is one sentence."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from glm_data import FAMILIES, NB_ALPHA, problem, ragged
from memory import MemoryTransport
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, GammaRegressor, PoissonRegressor
from statsmodels.tools.sm_exceptions import DomainWarning

import unpooled as up
from unpooled.data.federate import federate
from unpooled.errors import BadData, BadParameter
from unpooled.node.site import Site
from unpooled.node.source import FileTable, TableSource
from unpooled.remote import Remote

PEERS = {
    "normal": sm.families.Gaussian,
    "binomial": sm.families.Binomial,
    "poisson": sm.families.Poisson,
    "gamma": sm.families.Gamma,
    "negative_binomial": lambda link=None: sm.families.NegativeBinomial(link, alpha=NB_ALPHA),
}
OWN = {"negative_binomial": {"nb_alpha": NB_ALPHA}}


def pooled(family, x, y, link=None, fit=None, **options):
    """statsmodels' fit to the last digit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DomainWarning)
        law = PEERS[family]() if link is None else PEERS[family](link)
        model = sm.GLM(y, sm.add_constant(x), family=law, **options)
        return model.fit(tol=1e-15, maxiter=200, tol_criterion="params", **(fit or {}))


def estimates(model):
    return np.r_[model.intercept_, model.coef_]


def errors(model):
    return np.r_[model.intercept_stderr_, model.stderr_]


def assert_alike(model, theirs, rtol=1e-8):
    np.testing.assert_allclose(estimates(model), theirs.params, rtol=rtol)
    np.testing.assert_allclose(errors(model), theirs.bse, rtol=rtol)
    for ours, other in (
        (model.deviance_, theirs.deviance),
        (model.null_deviance_, theirs.null_deviance),
        (model.loglik_, theirs.llf),
        (model.aic_, theirs.aic),
        (model.pearson_chi2_, theirs.pearson_chi2),
        (model.scale_, theirs.scale),
        (model.df_resid_, theirs.df_resid),
    ):
        np.testing.assert_allclose(ours, other, rtol=rtol)


@pytest.mark.parametrize("clients", [1, 7, 300])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_pooled_fit_in_at_most_eight_rounds(family, clients):
    x, y = problem(family)
    fed = federate(x, y, by=ragged(len(x), clients), mode="one by one")
    model = up.GLM(family, **OWN.get(family, {})).fit(fed)
    assert model.converged_
    assert len(fed.journal.exchanges) <= 8
    assert {e.kind for e in fed.journal.exchanges} == {"sum"}
    assert_alike(model, pooled(family, x, y))


@pytest.mark.parametrize(
    ("family", "link", "theirs"),
    [
        ("gamma", "log", sm.families.links.Log()),
        ("binomial", "probit", sm.families.links.Probit()),
        ("poisson", "identity", sm.families.links.Identity()),
        ("normal", "log", sm.families.links.Log()),
    ],
)
def test_other_links(family, link, theirs):
    x, y = problem(family)
    if family == "normal":
        y = np.exp(0.3 * (x[:, 0] - 0.1 * x[:, 1])) + 0.1 * np.sin(np.arange(len(x)))
    if link == "identity":
        y = y + np.round(8 + x[:, 0] - x[:, 0].min())
    model = up.GLM(family, link=link).fit(x, y, by=ragged(len(x), 7))
    assert_alike(model, pooled(family, x, y, theirs))


def test_offset_and_weights():
    x, y = problem("poisson")
    weights = np.random.default_rng(5).integers(0, 4, len(y)).astype(float)
    table = np.column_stack([x[:, :3], 0.1 * x[:, 3]])
    model = up.GLM("poisson", offset=3).fit(table, y, by=ragged(len(x), 7), sample_weight=weights)
    theirs = pooled("poisson", x[:, :3], y, offset=table[:, 3], freq_weights=weights)
    np.testing.assert_allclose(estimates(model), theirs.params, rtol=1e-9)
    np.testing.assert_allclose(errors(model), theirs.bse, rtol=1e-9)
    np.testing.assert_allclose([model.deviance_, model.aic_], [theirs.deviance, theirs.aic], rtol=1e-10)
    assert model.df_resid_ == theirs.df_resid
    np.testing.assert_allclose(model.predict(table), theirs.predict(), rtol=1e-10)


def test_an_offset_by_name_is_left_out_of_the_coefficients():
    x, y = problem("poisson")
    frame = pd.DataFrame(x, columns=["age", "chol", "pressure", "exposure"])
    by = ragged(len(x), 3)
    named = up.GLM("poisson", offset="exposure").fit(frame, y, by=by)
    assert named.names_ == ["intercept", "age", "chol", "pressure"]
    np.testing.assert_allclose(named.coef_, up.GLM("poisson", offset=3).fit(x, y, by=by).coef_)
    np.testing.assert_allclose(named.predict(frame), up.GLM("poisson", offset=3).fit(x, y, by=by).predict(x))


@pytest.mark.parametrize("family", FAMILIES)
def test_masked_sums_give_the_same_model(family):
    x, y = problem(family)
    by, how = ragged(len(x), 7), {"cov_type": "site", **OWN.get(family, {})}
    plain = up.GLM(family, **how).fit(x, y, by=by)
    masked = up.GLM(family, **how).fit(up.SecureSum(federate(x, y, by=by), min_cohort=3))
    np.testing.assert_allclose(estimates(masked), estimates(plain), rtol=1e-9)
    np.testing.assert_allclose(errors(masked), errors(plain), rtol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cov_type", ["site", "HC0"])
def test_robust_standard_errors(family, cov_type):
    x, y = problem(family)
    by = ragged(len(x), 20)
    model = up.GLM(family, cov_type=cov_type, **OWN.get(family, {})).fit(federate(x, y, by=by, mode="stacked"))
    how = {"cov_type": "cluster", "cov_kwds": {"groups": by}} if cov_type == "site" else {"cov_type": cov_type}
    np.testing.assert_allclose(errors(model), pooled(family, x, y, fit=how).bse, rtol=1e-7)  # theirs inverts uncentred


def test_the_negative_binomials_alpha_is_learned_by_maximum_likelihood():
    x, y = problem("negative_binomial")
    fed = federate(x, y, by=ragged(len(x), 7))
    model = up.GLM("negative_binomial").fit(fed)
    start = np.r_[estimates(model), model.nb_alpha_] * 1.001
    theirs = sm.NegativeBinomial(y, sm.add_constant(x)).fit(start, method="newton", maxiter=200, disp=0, tol=1e-14)
    assert len(fed.journal.exchanges) <= 9
    np.testing.assert_allclose(np.r_[estimates(model), model.nb_alpha_], theirs.params, rtol=1e-8)
    np.testing.assert_allclose(np.r_[errors(model), model.nb_alpha_stderr_], theirs.bse, rtol=1e-7)
    np.testing.assert_allclose([model.loglik_, model.aic_], [theirs.llf, theirs.aic], rtol=1e-11)


def test_penalties_are_those_of_scikit_learn():
    by = ragged(900, 7)
    x, y = problem("normal")
    ours = up.GLM(alpha=0.1, l1_ratio=0.7).fit(x, y, by=by)
    theirs = ElasticNet(alpha=0.1, l1_ratio=0.7, tol=1e-14, max_iter=10**5).fit(x, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-12)
    for family, link, peer in (("poisson", None, PoissonRegressor), ("gamma", "log", GammaRegressor)):
        x, y = problem(family)
        ours = up.GLM(family, link=link, alpha=0.1).fit(x, y, by=by)
        theirs = peer(alpha=0.1, tol=1e-12, solver="newton-cholesky").fit(x, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9)
        assert np.isnan(ours.stderr_).all()


def test_without_intercept():
    x, y = problem("normal")
    model = up.GLM(fit_intercept=False).fit(x, y, by=ragged(len(x), 7))
    theirs = sm.OLS(y, x).fit()
    np.testing.assert_allclose(model.coef_, theirs.params, rtol=1e-10)
    np.testing.assert_allclose(model.stderr_, theirs.bse, rtol=1e-10)
    assert model.intercept_ == 0.0


def test_the_deviance_falls_every_round():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = rng.poisson(np.exp(3 * x[:, 0] + 3 * x[:, 1])).astype(float)
    model = up.GLM("poisson").fit(x, y, by=np.arange(400) % 5)
    deviance = [row["deviance"] for row in model.history_]
    assert len(deviance) > 5
    assert (np.diff(deviance) < 1e-9 * np.array(deviance[1:])).all()


def test_far_from_the_origin_no_digits_are_lost():
    x, y = problem("binomial")
    near = up.GLM("binomial").fit(x - x.mean(0), y, by=ragged(900, 7))
    far = up.GLM("binomial").fit(x + 2.0**20, y, by=ragged(900, 7))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-8)  # x + 2^20 itself has lost 20 of its 53 bits
    np.testing.assert_allclose(far.stderr_, near.stderr_, rtol=1e-8)


def test_intervals_and_the_table_are_those_of_statsmodels():
    x, y = problem("poisson")
    model, theirs = up.GLM("poisson").fit(x, y, by=ragged(900, 7)), pooled("poisson", x, y)
    np.testing.assert_allclose(model.conf_int(), theirs.conf_int(), rtol=1e-8)
    np.testing.assert_allclose(model.pvalues(), theirs.pvalues, rtol=1e-6)
    frame = theirs.get_prediction(sm.add_constant(x[:9])).summary_frame()
    low, high = model.interval(x[:9])
    np.testing.assert_allclose(model.predict(x[:9]), frame["mean"], rtol=1e-9)
    np.testing.assert_allclose(low, frame["mean_ci_lower"], rtol=1e-7)
    np.testing.assert_allclose(high, frame["mean_ci_upper"], rtol=1e-7)
    text = model.summary()
    assert f"{model.coef_[2]:.6g}" in text
    assert "residual df      895" in text


@pytest.mark.parametrize("cov_type", ["nonrobust", "HC0"])
def test_intervals_of_least_squares_are_those_of_statsmodels_ols(cov_type):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(14, 3))  # few rows: the t distribution is far from the normal one
    y = x @ [1.0, 0.5, 0.0] + rng.normal(size=14)
    model = up.LinearRegression(cov_type=cov_type).fit(x, y, by=np.arange(14) % 3)
    theirs = sm.OLS(y, sm.add_constant(x)).fit(cov_type=cov_type)
    np.testing.assert_allclose(model.conf_int(), theirs.conf_int(), rtol=1e-8)
    np.testing.assert_allclose(model.pvalues(), theirs.pvalues, rtol=1e-6)
    frame = theirs.get_prediction(sm.add_constant(x)).summary_frame()
    np.testing.assert_allclose(model.interval(x)[0], frame["mean_ci_lower"], rtol=1e-7)
    assert f"{'t' if cov_type == 'nonrobust' else 'z':>13}{'p':>13}" in model.summary()


def test_the_report_shows_every_coefficient_with_its_interval():
    x, y = problem("poisson")
    model = up.GLM("poisson").fit(pd.DataFrame(x, columns=["age", "<b>", "c", "d"]), y, by=ragged(900, 7))
    html = model.report_figures()["Coefficients"]
    assert html.count("<circle") == 5
    assert "&lt;b&gt;" in html
    assert f"{model.coef_[0]:.4g}" in html
    penalised = up.GLM("poisson", alpha=0.1).fit(x, y, by=ragged(900, 7))
    assert "<circle" not in penalised.report_figures()["Coefficients"]


def test_clients_that_miss_a_round_are_left_out_of_that_step_alone():
    x, y = problem("poisson")
    clients = federate(x, y, by=ragged(900, 7))
    away = {3: ["0", "4"], 5: ["2"]}
    model = up.GLM("poisson").fit(up.Faults(clients, drop=away))
    assert len(clients.journal.refusals) == 3
    np.testing.assert_allclose(model.coef_, up.GLM("poisson").fit(x, y).coef_, rtol=1e-8)
    gone = up.GLM("poisson").fit(up.Faults(clients, drop={r: ["6"] for r in range(1, 30)}))
    rest = ragged(900, 7) != 6
    np.testing.assert_allclose(gone.deviance_, up.GLM("poisson").fit(x[rest], y[rest]).deviance_, rtol=1e-9)
    assert gone.n_rows_ == rest.sum()


def test_a_table_read_in_chunks_gives_the_same_model(tmp_path):
    x, y = problem("gamma")
    names = ["a", "b", "c", "d"]
    pd.DataFrame(np.column_stack([x, y]), columns=[*names, "y"]).to_parquet(tmp_path / "t.parquet")
    source = TableSource("bern", FileTable(tmp_path / "t.parquet"), label="y", chunk_rows=100)
    fed = Remote(MemoryTransport([Site("bern", source, {})]))
    model = up.GLM("gamma").fit(fed)
    assert model.names_ == ["intercept", *names]
    assert_alike(model, pooled("gamma", x, y))


def test_missing_values_are_refused_or_dropped():
    x, y = problem("normal")
    whole = up.GLM().fit(x[20:], y[20:], by=ragged(900, 7)[20:])
    x[:20, 1] = np.nan
    with pytest.raises(
        BadData, match=r"20 rows have missing values \(most in column '.*', and at client .*\): use missing='drop'"
    ):
        up.GLM().fit(x, y, by=ragged(900, 7))
    dropped = up.GLM(missing="drop").fit(x, y, by=ragged(900, 7))
    np.testing.assert_allclose(estimates(dropped), estimates(whole), rtol=1e-10)
    assert dropped.n_rows_ == 880


def test_a_site_without_any_case_of_a_level_is_nothing_unusual():
    x, y = problem("binomial")
    by = ragged(900, 7)
    level = ((by == 3) & (np.arange(900) % 2 == 0)).astype(float)
    model = up.GLM("binomial").fit(np.column_stack([x, level]), y, by=by)
    assert_alike(model, pooled("binomial", np.column_stack([x, level]), y))


X, Y = problem("binomial", 300)
BY = np.arange(300) % 5
LEVEL = (np.arange(300) % 11 == 0).astype(float)


@pytest.mark.parametrize(
    ("model", "x", "y", "sentence"),
    [
        (up.GLM("binomial"), X, X[:, 1] > 5, "column 'x1' separates the outcomes.*set alpha="),
        (up.GLM("binomial"), np.c_[X, LEVEL], np.where(LEVEL, 1.0, Y), "column 'x4' separates the outcomes"),
        (up.GLM("poisson"), np.c_[X, LEVEL], np.where(LEVEL, 0.0, 1 + Y), "column 'x4' separates the outcomes"),
        (up.GLM("binomial"), np.c_[X, X[:, 1] * 3 + 1e5], Y, "column 'x4' is a combination of 'x1': leave it out"),
        (up.GLM("binomial"), X, Y[:, None], r"float64 of shape \(60, 1\)\): give a vector, such as y.ravel\(\)"),
        (up.GLM("poisson"), X, Y - 1, "targets are not counts of 0 or more.*: correct them"),
        (up.GLM("negative_binomial"), X, Y + 0.5, "300 targets are not whole numbers of 0 or more"),
        (up.GLM("gamma"), X, Y, "targets are not numbers above 0"),
        (up.GLM("binomial"), X, 2 * Y, "targets are not 0 or 1"),
        (up.GLM("binomial"), X, np.zeros(300), "all targets are 0: there is nothing"),
        (up.GLM("binomial"), X, np.ones(300), "all targets are 1: there is nothing"),
        (up.GLM("binomial"), X, np.where(Y > 0, "yes", "no"), "client '0' has targets that are not one number per row"),
        (up.GLM("negative_binomial"), X, 2 + Y, "varies no more than a Poisson law.*use family='poisson'"),
        (
            up.GLM("gamma", fit_intercept=False),
            X - X.mean(0),
            1 + Y,
            "no mean that link='inverse' gives.*use link='log'",
        ),
        (up.GLM(), X[:4], Y[:4], "4 rows cannot tell 5 coefficients"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_one_sentence(model, x, y, sentence):
    with pytest.raises(BadData, match=sentence):
        model.fit(x, y, by=BY[: len(x)])


@pytest.mark.filterwarnings("ignore:column 4 has the same value")
@pytest.mark.parametrize("value", [3.0, 0.1])
def test_a_constant_column_is_said_to_be_one(value):
    x = np.c_[X, np.full(300, value)]
    with pytest.raises(BadData, match="column 'x4' is constant over all clients, as the intercept is: leave it out"):
        up.GLM("binomial").fit(x, Y, by=BY)
    assert np.abs(up.GLM("binomial", alpha=1e-3).fit(x, Y, by=BY).coef_[4]) < 1e-9


def test_no_rows():
    with pytest.raises(ValueError, match="0 sample"):
        up.GLM().fit(X[:0], Y[:0])
    with pytest.raises(BadData, match="client 'a' is empty"):
        up.GLM().fit({"a": (X[:0], Y[:0]), "b": (X, Y)})


def test_a_penalty_answers_separation_and_duplicates():
    assert up.GLM("binomial", alpha=0.01).fit(X, X[:, 1] > 5, by=BY).converged_
    twice = up.GLM("binomial", alpha=0.01).fit(np.c_[X, X[:, 1]], Y, by=BY)
    np.testing.assert_allclose(twice.coef_[1], twice.coef_[4], rtol=1e-6)


def test_strong_signals_are_not_taken_for_separation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = (30 * x[:, 0] + rng.logistic(size=400) > 0).astype(float)
    assert_alike(up.GLM("binomial").fit(x, y, by=np.arange(400) % 5), pooled("binomial", x, y), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"family": "poison"}, "did you mean 'poisson'"),
        ({"family": "poisson", "link": "logit"}, "link='logit' is not known"),
        ({"alpha": -1}, "alpha=-1 must be a number of 0 or more"),
        ({"l1_ratio": 2}, "l1_ratio=2 must be between 0"),
        ({"offset": "agee"}, "offset='agee' is not a column"),
        ({"offset": 9}, "offset=9 is no column of 4"),
        ({"nb_alpha": 0}, "nb_alpha=0 must be a number above 0"),
        ({"cov_type": "cluster"}, "cov_type='cluster' is not known"),
        ({"family": "negative_binomial", "alpha": 1.0}, "needs the negative binomial's own nb_alpha="),
    ],
)
def test_parameters_that_cannot_work_are_refused_before_any_round(options, sentence):
    fed = federate(X, Y, by=BY)
    with pytest.raises(BadParameter, match=sentence):
        up.GLM(**options).fit(fed)
    assert fed.journal.exchanges == []


def test_errors_by_site_need_sites():
    with pytest.raises(BadParameter, match="there is only one"):
        up.GLM(cov_type="site").fit(X, Y)


def test_a_fit_that_was_cut_short_says_so():
    with pytest.warns(ConvergenceWarning, match="max_iter=2 rounds"):
        model = up.GLM("binomial", max_iter=2).fit(X, Y, by=BY)
    assert not model.converged_


def test_linear_regression_is_least_squares_in_three_sums():
    x, y = problem("normal")
    fed = federate(x, y, by=ragged(900, 7))
    model, theirs = up.LinearRegression().fit(fed), sm.OLS(y, sm.add_constant(x)).fit()
    assert len(fed.journal.exchanges) == 3
    np.testing.assert_allclose(estimates(model), theirs.params, rtol=1e-10)
    np.testing.assert_allclose(errors(model), theirs.bse, rtol=1e-10)
    assert model.score(x, y) == pytest.approx(theirs.rsquared, rel=1e-10)


def test_gaussian_is_another_name_of_normal():
    x, y = np.random.default_rng(0).normal(size=(2, 60, 1))
    named = [up.GLM(family).fit(x, y[:, 0], by=np.arange(60) % 3) for family in ("normal", "gaussian")]
    assert named[0].summary() == named[1].summary()
    assert named[0].to_sklearn().predict(x).tolist() == named[1].to_sklearn().predict(x).tolist()


def test_targets_that_are_met_exactly_have_an_infinite_likelihood():
    x = np.random.default_rng(0).normal(size=(30, 2))
    model = up.LinearRegression().fit(x, np.ones(30), by=np.arange(30) % 3)
    assert model.loglik_ == np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "inf" in model.summary()
    np.testing.assert_allclose(model.predict(x), 1.0)


def test_missing_targets_say_how_to_give_them():
    with pytest.raises(BadData, match=r"client 'a' has no targets: .* give \(X, y\) for each client, or .* label="):
        up.GLM().fit({"a": np.arange(5.0)[:, None], "b": np.arange(6.0)[:, None]})


def test_a_column_of_texts_is_no_offset():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=60), "ward": rng.choice(["north", "south"], 60)})
    with pytest.raises(BadParameter, match=r"offset='ward' is a column of texts \(ward=south\): an offset is a number"):
        up.GLM("poisson", offset="ward").fit(frame, rng.poisson(2, 60), by=np.arange(60) % 3)
