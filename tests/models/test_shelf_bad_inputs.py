"""Every bad input that the shelf's models meet in practice: each model works on it, or says in one sentence what to do."""

import numpy as np
import pytest

import unpooled as up
from unpooled.errors import BadData

pytestmark = pytest.mark.filterwarnings(
    "ignore::unpooled.errors.DataWarning", "ignore::sklearn.exceptions.ConvergenceWarning"
)

RNG = np.random.default_rng(0)
N = 120
X = RNG.normal(size=(N, 2))
SITE = np.arange(N) % 3
YES = (X[:, 0] + RNG.logistic(size=N) > 0).astype(float)
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0])).astype(float)
TIMES = np.ceil(20 * RNG.exponential(np.exp(-X[:, 0])))
EVENTS = (RNG.random(N) < 0.6).astype(float)

BINARY = {
    "GLM": lambda: up.GLM("binomial"),
    "LogisticRegression": lambda: up.LogisticRegression(penalty=None),
    "Pooling": lambda: up.Pooling("binomial", cv=None, random_state=0),
}
COUNTED = {
    "GLM": lambda: up.GLM("poisson"),
    "negative binomial": lambda: up.GLM("negative_binomial", nb_alpha=0.5),
    "Pooling": lambda: up.Pooling("poisson", cv=None, random_state=0),
}
LIFE = {"Cox": up.Cox, "by site": lambda: up.Cox(strata="site"), "KaplanMeier": up.KaplanMeier}


def refusal(model, x, y):
    """The sentence of a refusal: one line, and it says what to do."""
    with pytest.raises(BadData) as error:
        model.fit(x, y, by=SITE)
    said = str(error.value)
    assert "\n" not in said
    assert ":" in said, "what is wrong, then what to do"
    return said


@pytest.mark.parametrize("name", ["GLM", "LogisticRegression"])
def test_separation_is_refused_by_name(name):
    assert "separates the outcomes" in refusal(BINARY[name](), X, (X[:, 0] > 0).astype(float))


@pytest.mark.parametrize("name", BINARY)
def test_separation_at_one_site_is_no_separation(name):
    y = np.where(SITE == 0, X[:, 0] > 0, YES).astype(float)
    assert np.isfinite(BINARY[name]().fit(X, y, by=SITE).coef_).all()


@pytest.mark.parametrize("name", BINARY)
def test_constant_columns_are_named(name):
    assert "column" in refusal(BINARY[name](), np.column_stack([X, np.full(N, 7.0)]), YES)


@pytest.mark.parametrize("name", BINARY)
def test_a_column_that_is_constant_at_one_site_is_nothing_unusual(name):
    x = np.column_stack([X, np.where(SITE == 0, 0.0, RNG.normal(size=N))])
    assert np.isfinite(BINARY[name]().fit(x, YES, by=SITE).coef_).all()


@pytest.mark.parametrize("name", BINARY)
def test_duplicated_columns_are_named(name):
    assert "combination" in refusal(BINARY[name](), np.column_stack([X, X[:, :1]]), YES)


@pytest.mark.parametrize("name", COUNTED)
def test_negative_counts_are_refused(name):
    assert "targets are not" in refusal(COUNTED[name](), X, COUNTS - 1)


@pytest.mark.parametrize("name", BINARY)
def test_a_site_without_any_case_of_an_outcome_takes_part(name):
    y = np.where(SITE == 1, 0.0, YES)
    assert np.isfinite(BINARY[name]().fit(X, y, by=SITE).coef_).all()


def test_a_site_without_any_case_of_a_class_takes_part():
    labels = np.array(["a", "b", "c"])[(X[:, 0] > -0.5).astype(int) + (X[:, 1] > 0.5)]
    labels = np.where((SITE == 0) & (labels == "c"), "a", labels)
    model = up.LogisticRegression().fit(X, labels, by=SITE)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("name", ["Cox", "by site"])
def test_no_event_is_refused(name):
    assert "has an event" in refusal(LIFE[name](), X, np.column_stack([TIMES, np.zeros(N)]))


def test_without_events_the_curve_stays_at_one():
    curve = up.KaplanMeier().fit(X, np.column_stack([TIMES, np.zeros(N)]), by=SITE)
    np.testing.assert_array_equal(curve.survival_at([1.0, 100.0]), [[1.0, 1.0]])


@pytest.mark.parametrize("name", LIFE)
def test_one_event_times_of_zero_and_a_site_without_events_work(name):
    one = np.zeros(N)
    one[5] = 1.0
    life = {"one event": (TIMES, one), "times of 0": (np.where(SITE == 0, 0.0, TIMES), EVENTS)}
    life["a site without events"] = (TIMES, np.where(SITE == 2, 0.0, EVENTS))
    for what, columns in life.items():
        model = LIFE[name]() if name == "KaplanMeier" else LIFE[name]().set_params(penalizer=0.1)
        fitted = model.fit(X, np.column_stack(columns), by=SITE)
        found = fitted.survival_ if name == "KaplanMeier" else fitted.coef_
        assert np.isfinite(found).all(), what


def test_constant_and_duplicated_columns_are_described_and_reduced():
    x = np.column_stack([X, X[:, 0], np.full(N, 3.0)])
    about = up.Describe().fit(x, by=SITE)
    assert about.table_["sd"][3] == 0
    assert about.correlation_[0, 2] == pytest.approx(1)
    assert np.isnan(about.correlation_[0, 3])
    parts = up.PCA().fit(x, by=SITE)
    np.testing.assert_allclose(parts.explained_variance_[2:], 0, atol=1e-12)
