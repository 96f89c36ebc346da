"""LogisticRegression has scikit-learn's coefficients on the pooled rows; labels are found by sums."""

import numpy as np
import pytest
import statsmodels.api as sm
from flower_grid import flower
from glm_data import problem, ragged
from sklearn.linear_model import LogisticRegression as Pooled

import unpooled as up
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.errors import BadData, BadParameter
from unpooled.models.glm import linear_models

X, Y = problem("binomial")
RNG = np.random.default_rng(2)
THREE = np.digitize(0.4 * (X[:, 0] + X[:, 3]) + RNG.logistic(size=900), [-0.5, 0.8])
BY = ragged(900, 7)


def assert_alike(ours, theirs, rtol=1e-8):
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=rtol, atol=rtol * 100)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)


@pytest.mark.parametrize("y", [Y.astype(int), THREE], ids=["binary", "multinomial"])
@pytest.mark.parametrize(
    "options",
    [{}, {"C": 0.01}, {"fit_intercept": False}, {"class_weight": "balanced"}, {"class_weight": {1: 3.0}}],
    ids=str,
)
def test_it_is_scikit_learns_fit_to_pooled_rows(y, options):
    fed = federate(X, y, by=BY, mode="one by one")
    ours = up.LogisticRegression(**options).fit(fed)
    theirs = Pooled(solver="newton-cholesky", tol=1e-13, **options).fit(X, y)
    assert_alike(ours, theirs)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-8, atol=1e-12)
    assert (ours.predict(X) == theirs.predict(X)).all()
    assert ours.score(X, y) == theirs.score(X, y)
    assert len(fed.journal.exchanges) <= 8
    assert {e.kind for e in fed.journal.exchanges} == {"sum"}


def test_a_last_small_step_has_the_second_derivatives_of_the_one_before():
    fed = federate(X, THREE, by=BY)
    model = up.LogisticRegression(tol=1e-12).fit(fed)
    sent = [e.contents for e in fed.journal.exchanges if e.question == "glm.class_curvature"]
    small = [row.get("change", np.inf) < linear_models.CLOSE for row in model.history_]
    assert any(small[:-1])
    assert [contents.endswith("hessian (0)") for contents in sent] == [False, *small[:-1]]


@pytest.mark.parametrize("y", [Y.astype(int), THREE], ids=["binary", "multinomial"])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_absolute_penalties(y, l1_ratio):
    z = (X - X.mean(0)) / X.std(0)
    ours = up.LogisticRegression("elasticnet", l1_ratio=l1_ratio, C=0.05).fit(z, y, by=BY)
    theirs = Pooled(solver="saga", l1_ratio=l1_ratio, C=0.05, tol=1e-11, max_iter=10**5).fit(z, y)
    assert_alike(ours, theirs, rtol=1e-6)


def test_without_penalty_it_is_the_maximum_likelihood():
    ours = up.LogisticRegression(None).fit(X, THREE, by=BY)
    theirs = sm.MNLogit(THREE, sm.add_constant(X)).fit(method="newton", tol=1e-11, maxiter=100, disp=0).params
    found = np.column_stack([ours.intercept_, ours.coef_])
    np.testing.assert_allclose((found[1:] - found[0]).T, theirs, rtol=1e-8)
    np.testing.assert_allclose(found.sum(0), 0.0, atol=1e-9)


def test_words_as_labels_and_one_predictor_for_two():
    words = np.where(Y > 0, "yes", "no")
    model = up.LogisticRegression().fit(X, words, by=BY)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.coef_.shape == (1, 4)
    assert model.decision_function(X).shape == (900,)
    assert set(model.predict(X)) == {"no", "yes"}


def test_over_a_network_classes_are_counted_or_given():
    clients = [Client(f"s{c}", X[c == BY], THREE[c == BY]) for c in range(7)]
    fed = flower(clients)
    model = up.LogisticRegression().fit(fed)
    assert {e.kind for e in fed.journal.exchanges} == {"sum"}
    np.testing.assert_allclose(model.coef_, up.LogisticRegression().fit(X, THREE, by=BY).coef_, rtol=1e-9)
    words = [Client(c.name, c.x, np.array(["a", "b", "c"])[c.y]) for c in clients]
    with pytest.raises(BadData, match="not whole numbers from 0 to 63: name them all"):
        up.LogisticRegression().fit(flower(words))
    named = up.LogisticRegression(classes=["a", "b", "c"]).fit(flower(words))
    np.testing.assert_allclose(named.coef_, model.coef_, rtol=1e-9)


def test_missing_rows_are_refused_or_dropped():
    x = X.copy()
    x[:30, 0] = np.nan
    with pytest.raises(BadData, match="30 rows have missing values"):
        up.LogisticRegression().fit(x, THREE, by=BY)
    dropped = up.LogisticRegression(missing="drop").fit(x, THREE, by=BY)
    assert_alike(dropped, up.LogisticRegression().fit(X[30:], THREE[30:], by=BY[30:]))


@pytest.mark.parametrize(
    ("model", "x", "y", "error", "sentence"),
    [
        (up.LogisticRegression(), X, np.zeros(900, int), BadData, "all labels are 0"),
        (up.LogisticRegression(), X, X[:, 0], BadData, "are measurements"),
        (up.LogisticRegression(classes=[0, 1, 2, 5]), X, THREE, BadData, "no client has a complete row of class 5"),
        (up.LogisticRegression(None), X, X[:, 1] > 5, BadData, "column 'x1' separates the outcomes.*use penalty='l2'"),
        (up.LogisticRegression(None), X, np.where(X[:, 1] > 7, 2, THREE % 2), BadData, "column 'x1' separates"),
        (up.LogisticRegression(None), np.c_[X, X[:, 0]], THREE, BadData, "column 'x4' is a combination of 'x0'"),
        (up.LogisticRegression("l3"), X, THREE, BadParameter, "penalty='l3' is not known"),
        (up.LogisticRegression(C=0), X, THREE, BadParameter, "C=0 must be a number above 0"),
        (up.LogisticRegression("elasticnet"), X, THREE, BadParameter, "l1_ratio=None must be between"),
        (up.LogisticRegression(class_weight={9: 1.0}), X, THREE, BadParameter, "the class 9 that is not there"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_one_sentence(model, x, y, error, sentence):
    with pytest.raises(error, match=sentence):
        model.fit(x, y, by=BY)


def test_separation_is_no_matter_with_a_penalty():
    theirs = Pooled(solver="newton-cholesky", tol=1e-13, max_iter=500).fit(X, X[:, 1] > 5)
    assert_alike(up.LogisticRegression().fit(X, X[:, 1] > 5, by=BY), theirs)
