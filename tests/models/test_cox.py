"""Cox regression over clients: lifelines' fit of the pooled rows, and a likelihood computed one death at a time."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from sklearn.exceptions import ConvergenceWarning
from statsmodels.duration.hazard_regression import PHReg

import unpooled as up
from unpooled.errors import BadData, BadParameter, DataWarning

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 3)) * [1, 10, 0.1] + [0, 100, 5]
SITE = RNG.integers(0, 5, N)
HAZARD = np.exp((X - X.mean(0)) @ [0.5, -0.05, 3])
TIME, CENSORED = RNG.exponential(100 / HAZARD), RNG.exponential(150, N)
SMOOTH = np.column_stack([np.minimum(TIME, CENSORED), TIME <= CENSORED])
TIED = np.column_stack([np.ceil(SMOOTH[:, 0] / 10), SMOOTH[:, 1]])
EXACTLY = {"r_precision": 1e-15, "precision": 1e-14}


def fit(y=TIED, x=X, by=SITE, **options):
    return up.Cox(**options).fit(x, y, by=by)


def lifelines_fit(y, x=X, penalizer=0.0, **options):
    lifelines = pytest.importorskip("lifelines")
    import pandas as pd

    frame = pd.DataFrame(x).rename(columns=str).assign(T=y[:, 0], E=y[:, 1])
    if options:
        frame = frame.assign(site=SITE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lifelines.CoxPHFitter(penalizer=penalizer).fit(frame, "T", "E", fit_options=EXACTLY, **options)


def loglik(coef, y, x=X, ties="efron"):
    """The log partial likelihood, one death at a time."""
    eta = (x - x.mean(0)) @ coef
    total = 0.0
    for t in np.unique(y[y[:, 1] == 1, 0]):
        dead = (y[:, 0] == t) & (y[:, 1] == 1)
        risk, tied, n = np.exp(eta[y[:, 0] >= t]).sum(), np.exp(eta[dead]).sum(), dead.sum()
        shares = np.arange(n) / n if ties == "efron" else np.zeros(n)
        total += eta[dead].sum() - np.log(risk - shares * tied).sum()
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("y", [SMOOTH, TIED], ids=["smooth", "tied"])
def test_it_is_the_maximum_of_the_pooled_likelihood(y, ties):
    model = fit(y, ties=ties)
    assert model.loglik_ == pytest.approx(loglik(model.coef_, y, ties=ties), rel=1e-12)
    assert model.loglik_null_ == pytest.approx(loglik(np.zeros(3), y, ties=ties), rel=1e-12)
    slope = approx_fprime(model.coef_, loglik, 1e-6 * model.stderr_, y, X, ties) * model.stderr_
    np.testing.assert_allclose(slope, 0, atol=1e-4)
    for j, away in enumerate(np.diag(model.stderr_)):
        drop = model.loglik_ - loglik(model.coef_ + 1e-3 * away, y, ties=ties)
        curved = 0.5e-6 * model.stderr_[j] ** 2 * np.linalg.inv(model.covariance_)[j, j]
        assert drop == pytest.approx(curved, rel=1e-2)


@pytest.mark.parametrize("penalizer", [0.0, 0.1])
@pytest.mark.parametrize("y", [SMOOTH, TIED], ids=["smooth", "tied"])
def test_it_is_lifelines(y, penalizer):
    peer, model = lifelines_fit(y, penalizer=penalizer), fit(y, penalizer=penalizer)
    np.testing.assert_allclose(model.coef_, peer.params_, rtol=1e-8)
    np.testing.assert_allclose(model.stderr_, peer.standard_errors_, rtol=1e-8)
    np.testing.assert_allclose(model.confidence_interval_, peer.confidence_intervals_, rtol=1e-8)
    np.testing.assert_allclose(model.p_value_, peer.summary["p"], rtol=1e-7)
    np.testing.assert_allclose(model.hazard_ratio_, peer.hazard_ratios_, rtol=1e-8)
    assert model.concordance_ == pytest.approx(peer.concordance_index_, rel=1e-12)
    assert model.concordance_error_ == 0
    baseline = peer.baseline_cumulative_hazard_.loc[model.baseline_times_].to_numpy()[:, 0]
    np.testing.assert_allclose(model.baseline_cumulative_hazard_, baseline, rtol=1e-8)
    at = model.baseline_times_[[0, 5, 9]]
    survival = peer.predict_survival_function(_frame(X[:4]), times=at).to_numpy().T
    np.testing.assert_allclose(model.predict_survival(X[:4], at), survival, rtol=1e-8)


def _frame(x):
    import pandas as pd

    return pd.DataFrame(x).rename(columns=str)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("y", [SMOOTH, TIED], ids=["smooth", "tied"])
def test_it_is_statsmodels(y, ties):
    regression = pytest.importorskip("statsmodels.duration.hazard_regression")
    peer = regression.PHReg(y[:, 0], X, y[:, 1], ties=ties).fit(disp=0, tol=1e-12)
    model = fit(y, ties=ties)
    np.testing.assert_allclose(model.coef_, peer.params, rtol=1e-8)
    np.testing.assert_allclose(model.stderr_, peer.bse, rtol=1e-8)
    assert model.loglik_ == pytest.approx(peer.llf, rel=1e-10)


@pytest.mark.parametrize("strata", [None, "site"])
def test_the_automatic_penalty_makes_the_data_most_probable(strata):
    """MacKay's fixed point is checked at ordinary fits with the penalty given: effective coefficients = ridge |coef|^2."""
    rng = np.random.default_rng(1)
    x = np.column_stack([X, rng.normal(size=(N, 9))])  # nine columns that say nothing
    auto = fit(x=x, strata=strata, penalizer="auto")
    same = fit(x=x, strata=strata, penalizer=auto.penalizer_)
    np.testing.assert_allclose(auto.coef_, same.coef_, rtol=1e-6, atol=1e-9)
    assert auto.converged_
    ridge = N * auto.penalizer_
    coef = same.coef_ * same.scale_
    covariance = same.covariance_ * np.outer(same.scale_, same.scale_)
    assert len(coef) - ridge * np.trace(covariance) == pytest.approx(ridge * coef @ coef, rel=1e-6)


def test_the_automatic_penalty_takes_few_rounds_and_welcomes_every_column():
    x = np.column_stack([X, X[:, 0], np.ones(N)])  # one twice, one constant
    with pytest.warns(DataWarning):
        fed = up.federate(x, TIED, by=SITE)
    auto = up.Cox(penalizer="auto").fit(fed)
    assert len(auto.history_) <= 10
    assert auto.coef_[0] == pytest.approx(auto.coef_[3])
    assert auto.coef_[4] == pytest.approx(0, abs=1e-9)
    assert auto.score(x, TIED) > fit().concordance_ - 0.01


def test_without_any_effect_the_automatic_penalty_is_large():
    rng = np.random.default_rng(3)
    auto = fit(x=rng.normal(size=(N, 20)), penalizer="auto")
    assert auto.penalizer_ > 0.2
    assert np.abs(auto.coef_).max() < 0.1


@pytest.mark.parametrize("y", [SMOOTH, TIED], ids=["smooth", "tied"])
def test_stratified_by_site_it_is_lifelines_with_strata(y):
    peer, model = lifelines_fit(y, strata=["site"]), fit(y, strata="site")
    np.testing.assert_allclose(model.coef_, peer.params_, rtol=1e-8)
    np.testing.assert_allclose(model.stderr_, peer.standard_errors_, rtol=1e-8)
    assert model.concordance_ == pytest.approx(peer.concordance_index_, rel=1e-12)
    assert model.baseline_times_ is None


def test_robust_errors_are_lifelines_without_ties():
    peer, model = lifelines_fit(SMOOTH, cluster_col="site"), fit(SMOOTH, robust="site")
    np.testing.assert_allclose(model.stderr_, peer.standard_errors_, rtol=1e-8)


@pytest.mark.parametrize("strata", [None, "site"])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_robust_errors_with_ties_are_what_a_little_more_weight_for_a_site_does(strata, ties):
    """Infinitesimal jackknife: a site's part is the derivative of the coefficients with respect to its weight."""
    model = fit(ties=ties, strata=strata, robust="site")
    moves = []
    for site in range(5):
        ends = [
            up.Cox(ties=ties, strata=strata).fit(X, TIED, by=SITE, sample_weight=1 + step * (site == SITE)).coef_
            for step in (1e-4, -1e-4)
        ]
        moves.append((ends[0] - ends[1]) / 2e-4)
    np.testing.assert_allclose(model.stderr_, np.sqrt((np.array(moves) ** 2).sum(0)), rtol=1e-4)


@pytest.mark.parametrize("split", [SITE % 2, np.arange(N), np.zeros(N, int)])
def test_any_split_gives_the_pooled_fit(split):
    one, other = fit(), fit(by=split)
    for name in ("coef_", "stderr_", "baseline_cumulative_hazard_"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-9)
    assert other.concordance_ == one.concordance_


def test_columns_can_hold_time_and_event_by_name():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"T": TIED[:, 0], "a": X[:, 0], "b": X[:, 1], "E": TIED[:, 1], "c": X[:, 2]})
    model = up.Cox(duration="T", event="E").fit(frame, by=SITE)
    np.testing.assert_allclose(model.coef_, fit().coef_, rtol=1e-10)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_allclose(model.predict(frame[["a", "b", "c"]]), (X - X.mean(0)) @ model.coef_, rtol=1e-8)
    assert model.to_frame().loc["b", "coef"] == model.coef_[1]
    assert model.summary().splitlines()[1].startswith("a ")


def test_score_is_the_concordance_of_rows():
    model = fit()
    assert model.score(X, TIED) == pytest.approx(model.concordance_, rel=1e-12)


def test_many_patients_have_a_concordance_within_its_bound():
    x = RNG.normal(size=(2600, 2))
    y = np.column_stack([np.ceil(RNG.exponential(30 * np.exp(-x[:, 0]))), RNG.random(2600) < 0.7])
    model = up.Cox().fit(x, y, by=np.arange(2600) % 3)
    assert 0 < model.concordance_error_ < 1e-3
    assert abs(model.score(x, y) - model.concordance_) <= model.concordance_error_


def test_steps_with_a_least_count_change_little():
    exact, coarse = fit(SMOOTH), fit(SMOOTH, min_count=6)
    assert len(coarse.baseline_times_) < len(exact.baseline_times_) / 4
    assert (np.abs(coarse.coef_ - exact.coef_) < 0.5 * exact.stderr_).all()


def test_no_sum_by_step_is_over_fewer_patients_than_the_least_count():
    fed = up.federate(X, SMOOTH, by=np.zeros(N, int))
    model = up.Cox(min_count=6).fit(fed)
    step = np.searchsorted(model.baseline_times_, SMOOTH[:, 0], side="right") - 1
    for which in (SMOOTH[:, 1] == 1, SMOOTH[:, 1] == 0):
        counts = np.bincount(step[which & (step >= 0)])
        assert ((counts == 0) | (counts >= 6)).all()


def test_given_steps_ask_for_no_time_of_death():
    fed = up.federate(X, TIED, by=SITE)
    model = up.Cox(times=np.unique(TIED[TIED[:, 1] == 1, 0]), concordance=False).fit(fed)
    np.testing.assert_allclose(model.coef_, fit().coef_, rtol=1e-9)
    assert not any(e.question == "survival.below" for e in fed.journal.exchanges)


def test_stratified_by_site_no_time_is_asked_for():
    fed = up.federate(X, TIED, by=SITE)
    up.Cox(strata="site").fit(fed)
    largest = max(e.bytes_up for e in fed.journal.exchanges) / 5
    assert largest <= 8 * (1 + 3 + 6)


def test_single_deaths_have_no_sum_of_their_own():
    """A sum over one death would be that patient's row."""
    fed = up.federate(X, SMOOTH, by=SITE)
    fit_steps = up.Cox(concordance=False).fit(fed).baseline_times_
    sent = next(e for e in fed.journal.exchanges if e.question == "survival.risk_sums")
    assert sent.bytes_up / 5 == 8 * len(fit_steps) * 5  # rows, r and three sums of r x


# ---- bad inputs ----


def quiet(y, x=X, by=SITE, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return fit(y, x, by, **options)


@pytest.mark.parametrize("strata", [None, "site"])
@pytest.mark.parametrize(
    ("x", "y", "options", "says"),
    [
        (np.column_stack([X, np.ones(N)]), TIED, {}, "column '3' has the same value in every row: leave it out"),
        (np.column_stack([X, X[:, 0]]), TIED, {}, "columns '0', '3' cannot be told apart"),
        (X, TIED * [1, 0], {}, "none of 400 patients has an event"),
        (X, TIED - [3, 0], {}, "rows have a time below 0"),
        (X, TIED * [1, 2], {}, "neither 0 nor 1"),
        (np.where(X > 120, np.nan, X), TIED, {}, "rows have missing values .most in column .*set missing='drop'"),
        (X, TIED, {"ties": "exact"}, "use one of 'efron', 'breslow'"),
        (X, TIED, {"penalizer": -1}, "penalizer=-1 must be"),
        (X, TIED, {"robust": "row"}, "robust='row' is not known"),
        (X, TIED, {"duration": "T"}, "the columns have no names"),
        (X, np.column_stack([TIED, TIED]), {}, "not \\(time, event\\)"),
    ],
)
def test_bad_input_is_one_sentence(x, y, options, says, strata):
    with pytest.raises((BadData, BadParameter), match=says):
        quiet(y, x, strata=strata, **options)


def test_without_covariates_it_says_what_to_use():
    with pytest.raises(BadData, match="use KaplanMeier"):
        up.Cox(duration=0, event=1).fit(TIED)


def test_a_penalty_makes_constant_and_duplicated_columns_welcome():
    x = np.column_stack([X, X[:, 0], np.ones(N)])
    model = quiet(TIED, x, penalizer=0.01)
    assert model.coef_[0] == pytest.approx(model.coef_[3], rel=1e-6)
    assert model.coef_[4] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("strata", [None, "site"])
def test_one_event_is_enough(strata):
    one = TIED * [1, 0]
    one[7, 1] = 1
    model = fit(one, strata=strata)
    assert model.converged_
    if strata is None:
        assert model.loglik_ == pytest.approx(loglik(model.coef_, one), rel=1e-10)


@pytest.mark.parametrize("strata", [None, "site"])
def test_perfect_separation_is_said(strata):
    first = np.argmax(X[:, 0])
    one = TIED * [1, 0] + [1, 0]
    one[first] = [1, 1]
    with pytest.warns(
        ConvergenceWarning, match="no finite coefficient is best: leave (it|them) out, or give penalizer"
    ):
        fit(one, strata=strata)
    assert fit(one, strata=strata, penalizer=0.1).converged_


@pytest.mark.parametrize("strata", [None, "site"])
def test_a_level_without_any_event_is_said(strata):
    rare = (np.arange(N) % 20 == 0).astype(float)
    y = np.column_stack([TIED[:, 0], TIED[:, 1] * (rare == 0)])
    with pytest.warns(ConvergenceWarning, match="'3' tells events apart so well that no finite coefficient is best"):
        fit(y, x=np.column_stack([X, rare]), strata=strata)


@pytest.mark.parametrize("strata", [None, "site"])
def test_times_of_zero_and_a_site_without_events(strata):
    y = TIED.copy()
    y[:20, 0] = 0
    y[SITE == 2, 1] = 0
    model = fit(y, strata=strata)
    if strata is None:
        assert model.loglik_ == pytest.approx(loglik(model.coef_, y), rel=1e-12)
    assert model.converged_


def test_rows_with_missing_values_can_be_left_out():
    gaps = X.copy()
    gaps[::9, 1] = np.nan
    kept = ~np.isnan(gaps).any(1)
    np.testing.assert_allclose(fit(x=gaps, missing="drop").coef_, fit(TIED[kept], X[kept], SITE[kept]).coef_, rtol=1e-9)


def test_too_few_steps_are_said():
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        fit(max_iter=1)


def test_a_loaded_model_predicts(tmp_path):
    model = fit()
    again = up.load(model.save(tmp_path))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_survival(X, [3, 9]), model.predict_survival(X, [3, 9]))
    with pytest.raises(BadParameter, match="no common baseline"):
        fit(strata="site").predict_survival(X, [3])


def test_events_may_be_true_and_false_and_texts_are_named():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"t": rng.exponential(5, 80), "dead": rng.random(80) < 0.7, "age": rng.normal(size=80)})
    parts = {"a": frame[:40], "b": frame[40:]}
    numbers = {name: part.astype({"dead": float}) for name, part in parts.items()}
    fits = [up.Cox(duration="t", event="dead").fit(up.federate(data)) for data in (parts, numbers)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    texts = {name: part.assign(dead=np.where(part["dead"], "yes", "no")) for name, part in parts.items()}
    with pytest.raises(BadParameter, match="event='dead' is a column of texts"):
        up.Cox(duration="t", event="dead").fit(up.federate(texts))


def test_columns_that_nearly_follow_from_each_other_have_finite_coefficients():
    rng = np.random.default_rng(0)
    age = rng.normal(60, 9, 150)
    rows = np.column_stack([age, age + rng.normal(0, 0.02, 150), rng.normal(size=150)])
    time, died = rng.exponential(size=150), rng.random(150) < 0.7
    died = died.astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        cox = up.Cox().fit(rows, np.column_stack([time, died]), by=np.arange(150) % 3)
    peer = PHReg(time, rows, died, ties="efron").fit(disp=0)
    np.testing.assert_allclose(cox.coef_, peer.params, rtol=1e-5)
