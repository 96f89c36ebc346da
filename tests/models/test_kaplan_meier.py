"""Kaplan-Meier over clients: lifelines' curves, intervals and log-rank test, and a curve computed by hand."""

import warnings

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.errors import BadData, BadParameter, DataWarning
from unpooled.models.survival.times import join

RNG = np.random.default_rng(0)
N = 400
TIME = np.ceil(RNG.exponential(100, N) * RNG.choice([0.7, 1.0, 1.4], N))
EVENT = (RNG.random(N) < 0.6).astype(float)
GROUP = RNG.integers(0, 3, N).astype(float)
ROWS = np.column_stack([TIME, EVENT, GROUP])
SITE = RNG.integers(0, 6, N)
COLUMNS = {"duration": 0, "event": 1}


def fit(rows=ROWS, by=SITE, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return up.KaplanMeier(**{**COLUMNS, **options}).fit(rows, by=by)


def by_hand(time, event):
    """Times of death, the curve after each, and Greenwood's variance."""
    curve, spread, found = 1.0, 0.0, []
    for t in np.unique(time[event == 1]):
        n, d = (time >= t).sum(), ((time == t) & (event == 1)).sum()
        curve *= 1 - d / n
        spread += d / (n * (n - d)) if n > d else 0.0
        found.append((t, curve, curve**2 * spread))
    return np.array(found).T


def test_it_is_the_curve_of_the_pooled_rows():
    times, curve, variance = by_hand(TIME, EVENT)
    for by in (SITE, SITE % 2, np.arange(N)):
        km = fit(by=by)
        np.testing.assert_array_equal(km.times_, times)
        np.testing.assert_allclose(km.survival_[0], curve, rtol=1e-12)
        np.testing.assert_allclose(km.variance_[0], variance, rtol=1e-9)
    assert km.n_samples_ == N
    assert km.events_.sum() == EVENT.sum()


def test_y_of_time_and_event_is_the_same():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        other = up.KaplanMeier().fit(GROUP[:, None], np.column_stack([TIME, EVENT]), by=SITE)
    np.testing.assert_array_equal(other.survival_, fit().survival_)


@pytest.mark.parametrize("decimals", [0, 15])
def test_it_is_lifelines(decimals):
    lifelines = pytest.importorskip("lifelines")
    time = TIME if decimals == 0 else TIME * np.pi
    rows = np.column_stack([time, EVENT, GROUP])
    km = fit(rows, by=SITE, coverage=0.9)
    peer = lifelines.KaplanMeierFitter(alpha=0.1).fit(time, EVENT)
    np.testing.assert_allclose(km.survival_[0], peer.survival_function_.loc[km.times_].to_numpy()[:, 0], rtol=1e-8)
    interval = peer.confidence_interval_.loc[km.times_].to_numpy()
    np.testing.assert_allclose(np.stack([km.lower_[0], km.upper_[0]], 1), interval, rtol=1e-8)
    assert km.median_[0] == peer.median_survival_time_
    at = [0.0, 17.5, 60.0, 1e6]
    np.testing.assert_allclose(km.survival_at(at)[0], peer.survival_function_at_times(at), rtol=1e-8)


def test_it_is_statsmodels():
    survival = pytest.importorskip("statsmodels.duration.survfunc")
    km = up.KaplanMeier(**COLUMNS, by=2).fit(ROWS, by=SITE)
    statistic, p_value = survival.survdiff(TIME, EVENT, GROUP)
    assert km.logrank_["statistic"] == pytest.approx(statistic, rel=1e-8)
    assert km.logrank_["p_value"] == pytest.approx(p_value, rel=1e-8)
    peer, whole = survival.SurvfuncRight(TIME, EVENT), fit()
    np.testing.assert_allclose(whole.survival_[0], peer.surv_prob, rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(whole.variance_[0, :-1]), peer.surv_prob_se[:-1], rtol=1e-8)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # lifelines and a newer pandas
def test_log_rank_is_lifelines():
    lifelines = pytest.importorskip("lifelines.statistics")
    for groups in (GROUP, (GROUP > 0).astype(float)):
        km = up.KaplanMeier(**COLUMNS, by=2).fit(np.column_stack([TIME, EVENT, groups]), by=SITE)
        peer = lifelines.multivariate_logrank_test(TIME, groups, EVENT)
        assert km.logrank_["statistic"] == pytest.approx(peer.test_statistic, rel=1e-8)
        assert km.logrank_["p_value"] == pytest.approx(peer.p_value, rel=1e-8)
    assert fit().logrank_ is None


def test_curves_by_group_are_those_of_each_group_alone():
    km = up.KaplanMeier(**COLUMNS, by=2).fit(ROWS, by=SITE)
    np.testing.assert_array_equal(km.groups_, [0, 1, 2])
    for k, g in enumerate(km.groups_):
        times, curve, _ = by_hand(TIME[g == GROUP], EVENT[g == GROUP])
        np.testing.assert_allclose(km.survival_at(times)[k], curve, rtol=1e-12)


def test_a_least_count_holds_in_every_step_of_every_group():
    exact, coarse = (up.KaplanMeier(**COLUMNS, by=2, min_count=m).fit(ROWS, by=SITE) for m in (1, 8))
    assert len(coarse.times_) < len(exact.times_)
    for counts in (coarse.events_, coarse.censored_):
        assert ((counts == 0) | (counts >= 8)).all()
    np.testing.assert_array_equal(coarse.events_.sum(1), exact.events_.sum(1))
    assert np.abs(coarse.survival_[:, :-1] - exact.survival_at(coarse.times_ - 1)[:, 1:].reshape(3, -1)).max() < 0.1


def test_steps_are_joined_until_counts_are_enough():
    counts = np.array([[1, 0], [1, 1], [3, 3], [0, 2], [1, 0]])
    np.testing.assert_array_equal(join(counts, 3), [0])
    np.testing.assert_array_equal(join(counts, 1), np.arange(5))
    np.testing.assert_array_equal(join(np.array([[3], [0], [3], [1]]), 3), [0, 1])


def test_units_and_steps_given_beforehand():
    monthly = fit(unit=30)
    times, curve, _ = by_hand(np.round(TIME / 30) * 30, EVENT)
    np.testing.assert_allclose(monthly.survival_[0], curve, rtol=1e-12)
    np.testing.assert_array_equal(monthly.times_, times)
    fed = up.federate(ROWS, by=SITE)
    given = up.KaplanMeier(**COLUMNS, times=[50, 100, 150]).fit(fed)
    np.testing.assert_array_equal(given.times_, [0, 50, 100, 150])
    assert given.events_.sum() == EVENT.sum()
    assert fed.journal.round == 2  # a first look and the counts: no time is looked for


def test_times_of_zero_no_event_one_event_and_a_site_without_any():
    rows = np.array([[0.0, 1], [0, 0], [3, 1], [5, 0], [0, 1], [7, 0]])
    km = fit(rows, by=[0, 0, 0, 1, 0, 1])
    np.testing.assert_allclose(km.survival_[0], [4 / 6, 4 / 6 * 2 / 3])
    nobody = fit(np.array([[4.0, 0], [5, 0], [6, 0]]), by=[0, 1, 1])
    np.testing.assert_array_equal(nobody.survival_, [[1.0]])
    np.testing.assert_array_equal(nobody.lower_, [[1.0]])
    assert np.isinf(nobody.median_[0])
    one = fit(np.array([[4.0, 0], [5, 1], [6, 0]]), by=[0, 1, 1])
    np.testing.assert_allclose(one.survival_, [[0.5]])


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ([[-1.0, 1], [2, 0]], {}, "1 rows have a time below 0"),
        ([[1.0, 2], [2, 0]], {}, "neither 0 nor 1"),
        (
            [[1.0, np.nan], [2, 0]],
            {},
            "1 rows have missing values .most in column '1', and at client 'client-0'.: set missing='drop'",
        ),
        ([[1.0, 1], [2, 0]], {"min_count": 0}, "min_count=0 must be"),
        ([[1.0, 1], [2, 0]], {"times": [3, 2]}, "times= must be a list of rising times"),
        ([[1.0, 1], [2, 0]], {"unit": 0}, "unit=0 must be"),
        ([[1.0, 1], [2, 0]], {"event": 0}, "name the same column twice"),
        ([[1.0, 1], [2, 0]], {"event": 5}, "event=5 is not a column"),
        ([[1.0, 1], [2, 0]], {"event": "dead"}, "the columns have no names"),
        ([[1.0, 1], [2, 0]], {"duration": None, "event": None}, "has no times: give y as"),
        ([[1.0, 1], [2, 0]], {"intervals": "exact"}, "use one of 'log-log', 'plain'"),
    ],
)
def test_bad_input_is_one_sentence(rows, options, says):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        with pytest.raises((BadData, BadParameter), match=says):
            up.KaplanMeier(**{**COLUMNS, **options}).fit(np.array(rows))


def test_rows_with_missing_values_can_be_left_out():
    gaps = ROWS.copy()
    gaps[::9, 0] = np.nan
    np.testing.assert_allclose(
        fit(gaps, missing="drop").survival_, fit(np.delete(ROWS, np.s_[::9], 0), np.delete(SITE, np.s_[::9])).survival_
    )


def test_weights_count_patients():
    w = 1.0 + (np.arange(N) % 4 == 0)
    weighted = up.KaplanMeier(**COLUMNS).fit(ROWS, by=SITE, sample_weight=w)
    twice = np.concatenate([ROWS, ROWS[::4]])
    np.testing.assert_allclose(weighted.survival_, fit(twice, np.arange(len(twice)) % 3).survival_, rtol=1e-12)


def test_the_frame_has_a_row_per_group_and_step():
    km = up.KaplanMeier(**COLUMNS, by=2).fit(ROWS, by=SITE)
    frame = km.to_frame()
    assert len(frame) == km.survival_.size
    assert frame.query("group == 1").survival.tolist() == km.survival_[1].tolist()


def test_groups_of_texts_keep_their_names():
    arms = np.array(["drug", "placebo", "watch"])
    frame = pd.DataFrame({"days": TIME, "died": EVENT, "arm": arms[GROUP.astype(int)], "site": SITE})
    km = up.KaplanMeier(duration="days", event="died", by="arm").fit(frame, by="site")
    np.testing.assert_array_equal(km.groups_, arms)
    np.testing.assert_array_equal(km.survival_, up.KaplanMeier(**COLUMNS, by=2).fit(ROWS, by=SITE).survival_)
    assert list(km.to_frame().group.unique()) == list(arms)


@pytest.mark.parametrize("model", [up.KaplanMeier, up.Cox])
def test_dates_are_no_times(model):
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(TIME, "D")
    frame = pd.DataFrame({"last": days, "died": EVENT, "age": RNG.normal(size=N), "site": SITE})
    with pytest.raises(
        BadParameter, match="duration='last' is a column of dates: give the time since each patient's start"
    ):
        model(duration="last", event="died").fit(frame, by="site")
