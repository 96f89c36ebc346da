"""LogisticRegression with many coefficients: the same optimum by L-BFGS, with few second derivatives sent."""

import numpy as np
import pytest
from flower_grid import flower
from sklearn.linear_model import LogisticRegression as Pooled

import unpooled as up
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.models.glm import many_coefficients

RNG = np.random.default_rng(8)
N, D, CLASSES = 700, 40, 8
X = RNG.normal(size=(N, D)) @ RNG.normal(size=(D, D)) + 20.0
Y = (0.1 * (X - 20.0) @ RNG.normal(size=(D, CLASSES)) + RNG.gumbel(size=(N, CLASSES))).argmax(1)
BY = RNG.integers(4, size=N)
QUESTION = "glm.class_curvature"


def assert_alike(ours, theirs):
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"C": 30.0}, {"class_weight": "balanced"}], ids=str)
def test_it_is_scikit_learns_fit_to_pooled_rows(options):
    fed = federate(X, Y, by=BY)
    ours = up.LogisticRegression(**options).fit(fed)
    assert ours.converged_
    assert_alike(ours, Pooled(solver="newton-cholesky", tol=1e-13, **options).fit(X, Y))
    sent = [e.contents for e in fed.journal.exchanges if e.question == QUESTION]
    asked = [not contents.endswith("hessian (0)") for contents in sent]
    assert asked[: many_coefficients.REFRESHED[1] + 1] == [True, False, False, True]
    triangle = (D + 1) * (D + 2) // 2
    assert f"hessian ({CLASSES * triangle})" in sent[0]


def test_two_classes_few_coefficients_and_other_penalties_take_newtons_steps():
    for model, y in [
        (up.LogisticRegression(), Y > 3),
        (up.LogisticRegression(), np.minimum(Y, 2)),
        (up.LogisticRegression(fit_intercept=False), Y),
        (up.LogisticRegression("l1", C=0.1), Y),
    ]:
        fed = federate(X, y, by=BY)
        state = model.init(fed, np.random.default_rng(0))
        assert not isinstance(state.path, many_coefficients.Path)


def test_newtons_steps_go_on_where_rounds_become_too_many(monkeypatch):
    whole = up.LogisticRegression().fit(X, Y, by=BY)
    monkeypatch.setattr(many_coefficients, "SLOW", 6)
    fed = federate(X, Y, by=BY)
    ours = up.LogisticRegression().fit(fed)
    assert_alike(ours, whole)
    wide = CLASSES * (D + 1)
    assert f"hessian ({wide * (wide + 1) // 2})" in [e.contents for e in fed.journal.exchanges][-2]


def test_the_split_into_clients_does_not_matter_nor_does_the_network():
    clients = [Client(f"s{c}", X[c == BY], Y[c == BY]) for c in range(4)]
    here = up.LogisticRegression().fit(X, Y, by=BY)
    assert_alike(up.LogisticRegression().fit(X, Y, by=np.arange(N) % 7), here)
    assert_alike(up.LogisticRegression().fit(flower(clients)), here)


def test_units_of_columns_do_not_matter_without_a_penalty_to_speak_of():
    units = 10.0 ** RNG.uniform(-4, 4, size=D)
    near = up.LogisticRegression(C=1e12, max_iter=300).fit(X, Y, by=BY)
    far = up.LogisticRegression(C=1e20, max_iter=300).fit(X * units, Y, by=BY)
    np.testing.assert_allclose(far.predict_proba(X * units), near.predict_proba(X), atol=1e-5)


def test_a_step_that_makes_things_worse_is_shortened_and_one_of_other_rows_is_not():
    path = many_coefficients.begin(np.zeros((3, 2)))
    ridge = np.ones(6)
    within = np.tile([1.0, 0.0, 1.0], (3, 1)).ravel()
    first = many_coefficients.Evaluated(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), 10.0, 5.0, within)
    path = many_coefficients.advance(path, first, ridge)
    worse = first._replace(objective=11.0, within=np.zeros(0))
    shorter = many_coefficients.advance(path, worse, ridge)
    assert shorter.halvings == 1
    np.testing.assert_allclose(shorter.at, shorter.at[0] / path.at[0] * path.at, atol=1e-12)
    assert 0 < shorter.at[0] / path.at[0] < 1
    others = many_coefficients.advance(path, worse._replace(n=4.0), ridge)
    assert others.halvings == 0
    np.testing.assert_allclose(others.at.reshape(3, 2).sum(0), 0.0, atol=1e-12)
