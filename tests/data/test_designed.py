"""Predictors on mixed columns: the fit is that of columns made by hand, whatever the split, engine, layers or checkpoints."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import unpooled as up
from unpooled import baselines
from unpooled.data.designed import Designed, designed, moments
from unpooled.errors import BadParameter, DataWarning
from unpooled.federation import find_layer
from unpooled.layers.folds import Folded

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few rounds are enough here
RNG = np.random.default_rng(5)
N = 360
TABLE = pd.DataFrame(
    {
        "age": RNG.normal(60, 9, N),
        "sex": RNG.choice(["female", "male"], N),
        "pain": RNG.choice(["none", "mild", "strong"], N),
        "grade": pd.Categorical(RNG.choice(["lo", "mid", "hi"], N), ["lo", "mid", "hi"], ordered=True),
        "visit": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
        "smoker": RNG.random(N) < 0.3,
    }
)
RISK = (
    0.05 * (TABLE.age - 60) + (TABLE.sex == "male") + 1.2 * (TABLE.pain == "strong") + 0.4 * TABLE.grade.cat.codes - 1
)
LABEL = np.where(RNG.random(N) < 1 / (1 + np.exp(-RISK)), "ill", "well")
SITE = RNG.choice(list("abc"), N)
NAMES = ["age", "sex=male", "pain=none", "pain=strong", "grade", "visit", "smoker=true"]
DAYS = (TABLE.visit - pd.Timestamp("1970-01-01")).dt.days
BY_HAND = np.column_stack(
    [
        *(TABLE.age, TABLE.sex == "male", TABLE.pain == "none", TABLE.pain == "strong"),
        *(TABLE.grade.cat.codes, DAYS, TABLE.smoker),
    ]
).astype(float)


def fed(**how):
    return up.federate(TABLE.assign(y=LABEL, site=SITE), by="site", label="y", **how)


def test_coefficients_have_the_names_of_levels_and_equal_scikit_learns():
    model = up.LogisticRegression(penalty=None, tol=1e-12).fit(fed())
    assert model.columns_ == NAMES
    scale = BY_HAND.std(0)
    pooled = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit((BY_HAND - BY_HAND.mean(0)) / scale, LABEL)
    np.testing.assert_allclose(model.coef_[0] * scale, pooled.coef_[0], rtol=1e-4, atol=1e-6)
    assert "pain=strong" in up.GLM(family="binomial").fit(numbers()).summary()


def test_coefficients_of_learners_are_per_unit_of_the_columns():
    model = baselines.FedAvg(C=1e8, random_state=0).fit(fed())
    pooled = up.LogisticRegression(penalty=None, tol=1e-12).fit(fed())
    scale = BY_HAND.std(0)
    np.testing.assert_allclose(model.coef_ * scale, pooled.coef_ * scale, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.intercept_, pooled.intercept_, rtol=1e-2)


def numbers():
    return up.federate(TABLE.assign(y=(LABEL == "ill") * 1.0, site=SITE), by="site", label="y")


@pytest.mark.parametrize(
    "make",
    [
        lambda: up.LogisticRegression(),
        lambda: baselines.FedAvg(max_iter=4, random_state=0),
        lambda: up.FedConceptEM(max_iter=3, random_state=0),
        lambda: up.FedGMM(max_iter=40, random_state=0),
    ],
)
def test_the_fit_is_that_of_columns_made_by_hand(make):
    model = make().fit(fed())
    made = pd.DataFrame(BY_HAND, columns=NAMES)
    kinds = {"age": {"kind": "real", "unit": "years"}}  # columns with a unit are scaled as mixed ones are
    by_hand = make().fit(up.federate(made.assign(y=LABEL, site=SITE), by="site", label="y", columns=kinds))
    np.testing.assert_allclose(model.predict_proba(TABLE), by_hand.predict_proba(made), rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(model.predict(TABLE.iloc[:, ::-1]), model.predict(TABLE))


def test_regressions_take_mixed_columns():
    y = RISK.to_numpy() + RNG.normal(size=N)
    table = up.federate(TABLE.assign(y=y, site=SITE), by="site", label="y")
    for make in (up.BayesianRegression, lambda: up.GLM(family="normal")):
        model, by_hand = make().fit(table), make().fit(BY_HAND, y, by=SITE)
        assert model.columns_ == NAMES
        np.testing.assert_allclose(model.predict(TABLE), by_hand.predict(BY_HAND), rtol=1e-8)


def test_a_learner_is_the_same_for_any_split_and_after_a_checkpoint(tmp_path):
    whole = baselines.FedAvg(max_iter=3, random_state=0).fit(fed(mode="one by one"))
    again = baselines.FedAvg(max_iter=3, random_state=0).fit(fed())
    np.testing.assert_allclose(whole.theta_, again.theta_, rtol=1e-12)
    federation = fed()
    moments_seen = list(baselines.FedAvg(max_iter=3, random_state=0).rounds(federation))
    resumed = baselines.FedAvg(max_iter=3, random_state=0)
    for _ in resumed.rounds(fed(), moments_seen[1]):
        pass
    np.testing.assert_array_equal(resumed.theta_, again.theta_)
    loaded = up.load(again.save(tmp_path))
    np.testing.assert_array_equal(loaded.predict_proba(TABLE), again.predict_proba(TABLE))
    assert federation.columns == list(TABLE.columns)  # the federation is as it was


def test_moments_are_those_of_the_pooled_columns():
    model = baselines.FedAvg(max_iter=1, random_state=0).fit(fed())
    np.testing.assert_allclose(
        model.design_columns_["mean"], [BY_HAND[:, 0].mean(), 0, 0, 0, *BY_HAND[:, 4:6].mean(0), 0]
    )
    np.testing.assert_allclose(
        model.design_columns_["scale"], [BY_HAND[:, 0].std(), 1, 1, 1, *BY_HAND[:, 4:6].std(0), 1]
    )
    federation = fed()
    baselines.FedAvg(max_iter=1, random_state=0).fit(federation)
    assert federation.journal.exchanges[0].question == moments.name


def test_layers_stay_around_and_are_put_back():
    metered = up.Metered(up.SecureSum(fed(), min_cohort=3))
    inner = metered.inner
    plain = up.LogisticRegression().fit(fed())
    masked = up.LogisticRegression(classes=["ill", "well"]).fit(metered)
    np.testing.assert_allclose(masked.coef_, plain.coef_, atol=1e-5)
    assert metered.inner is inner
    assert find_layer(metered, "find_moments") is None
    assert metered.columns == list(TABLE.columns)


def test_folds_are_cut_among_the_rows_as_they_were():
    with designed(Folded(fed(), 5, 2), fed().schema, False) as folded:
        assert isinstance(folded.inner, Designed)
        asked = up.LogisticRegression()._rounds(folded, None)
        for _ in asked:
            pass
    scores = up.cross_validate(up.LogisticRegression(), fed(), cv=5)
    assert scores.n_rows == N
    by_hand = np.mean([m.score(TABLE, LABEL) for m in scores.models])
    assert 0.5 < by_hand <= 1
    held_out = 1 - scores.mean["error"]
    assert abs(held_out - by_hand) < 0.05


def test_a_model_of_numbers_refuses_categories_and_takes_the_rest():
    with pytest.raises(BadParameter, match=r"PCA takes numbers and column 'pain' is a category"):
        up.PCA().fit(fed())
    rest = up.federate(TABLE.drop(columns="pain").assign(site=SITE), by="site")
    model = up.PCA(n_components=2).fit(rest)
    expected = up.PCA(n_components=2).fit(BY_HAND[:, [0, 1, 4, 5, 6]])
    np.testing.assert_allclose(np.abs(model.transform(TABLE)), np.abs(expected.transform(BY_HAND[:, [0, 1, 4, 5, 6]])))


def test_new_levels_at_predict_time_are_the_first_level_with_a_warning():
    model = up.LogisticRegression().fit(fed())
    odd, first = TABLE.head(3).assign(pain="sharp"), TABLE.head(3).assign(pain="mild")
    with pytest.warns(
        DataWarning, match="3 rows of the data hold 'sharp' in column 'pain'.*taken as 'mild', the first level"
    ):
        np.testing.assert_array_equal(model.predict_proba(odd), model.predict_proba(first))
    with pytest.raises(ValueError, match="no column 'pain', which the model was fitted with"):
        model.predict(TABLE.drop(columns="pain"))
    with pytest.raises(BadParameter, match=r"fitted to 6 columns .* got shape"):
        model.predict(BY_HAND)


def test_survival_names_its_indicators():
    time = np.ceil(RNG.exponential(100 / np.exp(0.5 * RISK)))
    table = TABLE.drop(columns=["visit", "grade"]).assign(time=time, dead=RNG.random(N) < 0.7, site=SITE)
    model = up.Cox(duration="time", event="dead=true").fit(up.federate(table, by="site"))
    assert model.columns_ == ["age", "sex=male", "pain=none", "pain=strong", "smoker=true"]
    assert model.predict(TABLE).shape == (N,)


def test_private_fits_refuse_categories_and_take_two_levels():
    table = TABLE[["age", "sex", "pain"]].assign(y=RISK, site=SITE)
    bounds = {"age": (20, 100), "sex": (0, 1), "pain": (0, 2), "y": (-5, 5)}
    mixed = up.federate(table, by="site", label="y")
    with pytest.raises(BadParameter, match="'pain' is a category, which fits with differential privacy do not take"):
        up.BayesianRegression().fit(up.Private(mixed, epsilon=5, delta=1e-5, bounds=bounds))
    rest = up.federate(table.drop(columns="pain"), by="site", label="y")
    bounds.pop("pain")
    model = up.BayesianRegression().fit(up.Private(rest, epsilon=5, delta=1e-5, bounds=bounds))
    assert model.predict(TABLE).shape == (N,)
