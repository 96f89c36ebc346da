"""A table one over clients: NumPy's and pandas' numbers of the pooled rows; quantiles to the last bit."""

import warnings

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.errors import BadParameter, DataWarning
from unpooled.models.describe import questions
from unpooled.models.describe.quantile_rules import METHODS

RNG = np.random.default_rng(0)
N = 301
P = (0.0, 0.01, 0.05, 0.25, 1 / 3, 0.5, 0.75, 0.95, 1.0)
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(60, 9, N).round(),
        "sex": RNG.integers(0, 2, N) * 1.0,
        "crp": RNG.lognormal(1, 2, N),
        "change": RNG.normal(size=N) * 1e-3 - 5,
        "stage": RNG.integers(1, 5, N) * 1.0,
        "signed": RNG.normal(size=N).round(1),
    }
)
FRAME.loc[RNG.random(N) < 0.2, "crp"] = np.nan
FRAME.loc[RNG.random(N) < 0.1, "stage"] = np.nan
SITE = RNG.integers(0, 4, N)


def fed(frame=FRAME, site=SITE, **engine):
    return up.federate(frame.assign(site=site), by="site", **engine)


def describe(frame=FRAME, site=SITE, **options):
    return up.Describe(**options).fit(fed(frame, site))


def pooled_quantiles(frame, method="linear", p=P):
    return np.stack([np.quantile(frame[c].dropna().to_numpy(), p, method=method) for c in frame], 1)


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_are_numpys_to_the_last_bit(method):
    about = describe(probabilities=P, method=method, min_count=1, by="sex")
    np.testing.assert_array_equal(about.quantiles_, pooled_quantiles(FRAME, method))
    for sex in (0, 1):
        alone = about.groups_[str(sex)]["quantiles"]
        np.testing.assert_array_equal(alone, pooled_quantiles(FRAME[FRAME.sex == sex], method))


@pytest.mark.parametrize("site", [np.zeros(N, int), np.arange(N), SITE % 2])
def test_the_split_does_not_matter(site):
    about = describe(site=site, probabilities=P, min_count=1)
    np.testing.assert_array_equal(about.quantiles_, pooled_quantiles(FRAME))


def test_extreme_numbers_have_exact_quantiles():
    x = np.array([[-1e150], [-1.0], [-5e-324], [0.0], [-0.0], [5e-324], [1e-300], [3.0], [1e150]])
    about = up.Describe(min_count=1, probabilities=(0, 0.25, 0.5, 0.9, 1), method="lower", bins=0).fit(x)
    np.testing.assert_array_equal(about.quantiles_[:, 0], np.quantile(x[:, 0], (0, 0.25, 0.5, 0.9, 1), method="lower"))


def test_two_hundred_columns_take_at_most_64_rounds():
    x = RNG.normal(size=(300, 200)) * RNG.lognormal(0, 3, 200)
    x[RNG.random(x.shape) < 0.02] = np.nan
    many = up.federate(x, by=np.arange(300) % 3)
    about = up.Describe(min_count=1).fit(many)
    np.testing.assert_array_equal(about.quantiles_, np.nanquantile(x, (0.05, 0.25, 0.5, 0.75, 0.95), axis=0))
    assert many.journal.round <= 64


def test_large_clients_keep_no_ordered_copies(monkeypatch):
    plain = describe(by="sex", sites=True)
    monkeypatch.setattr(questions, "KEPT", 0)
    here = fed()
    frugal = up.Describe(by="sex", sites=True).fit(here)
    np.testing.assert_array_equal(frugal.quantiles_, plain.quantiles_)
    np.testing.assert_array_equal(frugal.groups_["1"]["quantiles"], plain.groups_["1"]["quantiles"])
    np.testing.assert_array_equal(frugal.histograms_["age"]["rows"], plain.histograms_["age"]["rows"])
    assert not any(key.startswith("describe") for c in here.clients for key in c.memo)


def test_rounded_data_take_few_rounds():
    small = fed(FRAME[["age", "sex", "signed"]])
    up.Describe().fit(small)
    assert small.journal.round <= 20


def test_a_rehearsal_of_few_rounds_asks_every_question():
    short = up.Describe(by="sex")
    short.max_iter = 3
    np.testing.assert_array_equal(short.fit(fed()).quantiles_, describe(by="sex").quantiles_)


def test_only_sums_are_asked_for():
    for options in ({}, {"by": "sex"}, {"sites": True}):
        here = fed()
        up.Describe(**options).fit(here)
        assert {e.kind.lower() for e in here.journal.exchanges} == {"sum"}


def test_counts_means_and_deviations_are_pandas():
    about = describe(min_count=1, by="sex", sites=True)
    parts = {"all": (about, FRAME)}
    parts |= {f"sex {s}": (about.groups_[str(s)], FRAME[FRAME.sex == s]) for s in (0, 1)}
    parts |= {f"site {s}": (about.sites_[str(s)], FRAME[s == SITE]) for s in range(4)}
    for name, (found, frame) in parts.items():
        table = found.table_ if name == "all" else found["table"]
        for ours, theirs in (("n", "count"), ("mean", "mean"), ("sd", "std"), ("low", "min"), ("high", "max")):
            np.testing.assert_allclose(table[ours], getattr(frame, theirs)(), rtol=1e-12, err_msg=f"{name} {ours}")
        np.testing.assert_array_equal(table["missing"], frame.isna().sum())
    np.testing.assert_array_equal(about.sites_["2"]["quantiles"][2], FRAME[SITE == 2].median())


def test_deviations_far_from_the_origin_keep_their_digits():
    x = RNG.normal(size=(500, 1)) + 1e8
    about = up.Describe().fit(x, by=np.arange(500) % 3)
    assert about.table_["sd"][0] == pytest.approx(np.std(x, ddof=1), rel=1e-9)


def test_correlations_are_pandas_with_missing_values():
    about = describe(min_count=1)
    np.testing.assert_allclose(about.correlation_, FRAME.corr(), rtol=1e-10, atol=1e-12)
    there = FRAME.notna().to_numpy().astype(float)
    np.testing.assert_array_equal(about.pair_rows_, there.T @ there)
    assert describe(correlations=False).correlation_ is None


def test_levels_are_counted():
    about = describe(by="sex")
    assert set(about.levels_) == {"sex", "stage"}
    counts = FRAME.stage.value_counts().sort_index()
    np.testing.assert_array_equal(about.levels_["stage"]["values"], counts.index)
    np.testing.assert_array_equal(about.levels_["stage"]["rows"], counts)
    women = FRAME[FRAME.sex == 1].stage.value_counts().sort_index()
    np.testing.assert_array_equal(about.groups_["1"]["levels"]["stage"]["rows"], women)


def test_histograms_are_numpys():
    about = describe(min_count=1, bins=12)
    for name in ("age", "crp", "change"):
        found = about.histograms_[name]
        rows, edges = np.histogram(FRAME[name].dropna(), found["edges"])
        np.testing.assert_array_equal(found["rows"], rows)
        np.testing.assert_allclose(edges[[0, -1]], [FRAME[name].min(), FRAME[name].max()])
    assert describe(bins=0).histograms_ == {}


def test_patterns_of_missing_values():
    about = describe(min_count=1)
    expected = FRAME.isna()[["crp", "stage"]].value_counts()
    found = about.patterns_
    assert found["columns"] == ["crp", "stage"]
    for pattern, rows in zip(found["missing"], found["rows"], strict=True):
        assert expected[tuple(bool(g) for g in pattern)] == rows
    assert found["other"] == 0


def test_many_columns_with_gaps_have_their_patterns():
    x = RNG.normal(size=(400, 30))
    kinds = np.concatenate([np.zeros((1, 30), bool), RNG.random((3, 30)) < 0.4])
    x[kinds[RNG.integers(0, 4, 400)]] = np.nan
    about = up.Describe().fit(x, by=np.arange(400) % 4)
    patterns, counts = np.unique(np.isnan(x[:, kinds.any(0)]), axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    np.testing.assert_array_equal(np.sort(about.patterns_["rows"]), np.sort(counts))
    assert {bytes(p.astype(np.uint8)) for p in about.patterns_["missing"]} == {
        bytes(p.astype(np.uint8)) for p in patterns[order]
    }


# ---- what is withheld ----


def test_nothing_of_fewer_rows_than_the_least_count_is_shown():
    about = describe(min_count=10, probabilities=P)
    ages = np.sort(FRAME.age)
    assert about.table_["low"][0] == ages[9]
    assert about.table_["high"][0] == ages[-10]
    assert np.isnan(about.quantiles_[[0, 1, -1], 0]).all()
    assert np.isfinite(about.quantiles_[3:8, 0]).all()
    for found in about.histograms_.values():
        shown = found["rows"][~np.isnan(found["rows"])]
        assert ((shown == 0) | (shown >= 10)).all()
    assert (about.patterns_["rows"] >= 10).all()
    assert about.patterns_["rows"].sum() + about.patterns_["other"] == N


def test_rare_levels_are_counted_as_other():
    frame = FRAME[["sex"]].assign(kind=np.repeat([1.0, 2.0, 9.0], [200, 99, 2]))
    found = describe(frame).levels_["kind"]
    np.testing.assert_array_equal(found["values"], [1, 2])
    assert found["other"] == 2


def test_the_largest_value_is_nowhere_in_the_result():
    frame = FRAME[["crp"]].copy()
    frame.loc[5, "crp"] = 987654.321
    for least, shown in ((1, True), (5, False)):
        about = describe(frame, min_count=least)
        numbers = np.concatenate([np.ravel(a) for a in (*about.table_.values(), *about.histograms_["crp"].values())])
        assert (987654.321 in numbers) == shown


# ---- the tables ----


def test_table_one_as_text_html_and_frame():
    about = describe(by="sex", sites=True)
    text = str(about)
    assert "age, mean (sd)" in text
    assert "sex = 1" in text
    assert f"{FRAME.crp.isna().sum()} ({100 * FRAME.crp.isna().mean():.1f})" in text
    html = about.to_html()
    assert html.startswith("<table>")
    assert html.count("<tr>") == len(text.splitlines()) - 1
    frame = about.to_frame()
    assert len(frame) == 6 * (1 + 2 + 4)
    assert frame.query("group == 'all' and column == 'age'")["q50"].item() == FRAME.age.median()


def test_names_are_escaped_in_html():
    about = describe(FRAME[["age"]].rename(columns={"age": "<script>"}))
    assert "<script>" not in about.to_html()
    assert "&lt;script&gt;" in about.to_html()


def test_before_the_fit_it_says_its_parameters():
    assert str(up.Describe(by="sex")) == "Describe(by='sex')"


def test_saved_and_loaded_the_table_is_the_same(tmp_path):
    about = describe(by="sex")
    assert str(up.load(about.save(tmp_path))) == str(about)


# ---- odd inputs ----


def test_constant_duplicated_and_lonely_columns():
    frame = FRAME[["age"]].assign(same=FRAME.age, constant=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        about = describe(frame)
    assert about.correlation_[0, 1] == pytest.approx(1.0)
    assert np.isnan(about.correlation_[0, 2])
    np.testing.assert_array_equal(about.levels_["constant"]["rows"], [N])
    np.testing.assert_array_equal(about.quantiles_[:, 2], 3.0)
    assert about.table_["sd"][2] == 0


def test_weights_count_rows():
    w = 1.0 + (np.arange(N) % 3 == 0)
    twice = pd.concat([FRAME, FRAME[::3]])
    weighted = up.Describe(min_count=1).fit(FRAME.to_numpy(), by=SITE, sample_weight=w)
    np.testing.assert_array_equal(
        weighted.quantiles_, describe(twice, np.arange(len(twice)) % 3, min_count=1).quantiles_
    )


def test_few_rows_say_little():
    about = describe(FRAME[:4], SITE[:4])
    assert np.isnan(about.quantiles_).all()
    assert np.isnan(about.table_["mean"]).all()
    assert str(about).endswith("withheld: it would tell of fewer than 5 rows (min_count)")
    assert "withheld: it would tell of fewer than 5 rows (min_count)</td></tr></tfoot>" in about.to_html()
    assert "withheld" not in str(describe(FRAME, SITE, min_count=1))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"by": "gender"}, "by='gender' is not a column of the data"),
        ({"by": 17}, "by=17 is not a column"),
        ({"by": "crp"}, "more than 20 different values, or none with 5 rows"),
        ({"probabilities": [1.5]}, "must be numbers from 0 to 1"),
        ({"probabilities": []}, "must be numbers from 0 to 1"),
        ({"probabilities": "median"}, "must be numbers from 0 to 1"),
        ({"method": "exact"}, "method='exact' is not known"),
        ({"min_count": 0}, "min_count=0 must be"),
        ({"sites": 1}, "sites=1 must be True or False"),
        ({"bins": -1}, "bins=-1 must be"),
    ],
)
def test_bad_parameters_are_one_sentence(options, says):
    with pytest.raises(BadParameter, match=says):
        describe(**options)


def test_dates_are_shown_as_dates():
    frame = pd.DataFrame({"visit": pd.date_range("2020-01-01", periods=101).astype(str)})
    text = str(up.Describe().fit(up.federate({"a": frame[:40], "b": frame[40:]}, columns={"visit": "date"})))
    assert "2020-02-20 (29.3)" in text
    assert text.count("2020-") == 6


WARDS = pd.DataFrame(
    {
        "age": RNG.normal(60, 9, N).round(),
        "sex": RNG.choice(["female", "male"], N),
        "diagnosis": [f"I{code}" for code in RNG.integers(10, 40, N)],
        "note": [f"text {code}" for code in RNG.integers(0, 200, N)],
    }
)


def lines(about):
    return {line.split("  ")[0]: line for line in about.to_text().splitlines() if not line.startswith("  ")}


def test_groups_are_called_by_the_texts_of_their_column():
    about = describe(WARDS, by="sex")
    assert list(about.groups_) == ["female", "male"]
    assert all(type(name) is str for name in about.groups_)
    assert " ".join(about.to_text().splitlines()[0].split()) == "all sex = female sex = male"
    assert about.groups_["female"]["rows"] == (WARDS.sex == "female").sum()
    assert set(about.to_frame().group) == {"all", "sex = female", "sex = male"}


def test_a_column_of_many_texts_has_levels_and_no_mean():
    about = describe(WARDS)
    counts = WARDS.diagnosis.value_counts()
    assert counts.size > about.max_levels
    shown = about.levels_["diagnosis"]
    np.testing.assert_array_equal(np.sort(shown["rows"]), np.sort(counts[counts >= 5]))
    assert shown["other"] == counts[counts < 5].sum()
    assert "diagnosis, mean (sd)" not in lines(about)
    assert "diagnosis" not in about.histograms_
    assert np.isnan(about.table_["mean"][2])
    assert np.isnan(about.quantiles_[:, 2]).all()
    assert about.levels_["note"]["rows"].sum() + about.levels_["note"]["other"] == N


def test_percent_are_of_all_values_also_where_levels_are_withheld():
    about = describe(WARDS, sites=True, min_count=20, max_levels=30)
    first = str(SITE[SITE == 0][0])
    female = (WARDS.sex[SITE == 0] == "female").mean()
    assert f"({100 * female:.1f})" in about.to_text()
    other = about.sites_[first]["levels"]["diagnosis"]["other"]
    share = next(line for line in about.to_text().splitlines() if line.startswith("  other"))
    assert f"{other:g} ({100 * other / (SITE == 0).sum():.1f})" in share
