"""What clients keep: never much worse than the shared model or than alone, close to the shared one with few rows, and private."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import unpooled as up
from unpooled.baselines import IFCA, FedAvg, LocalOnly
from unpooled.learners import calibration, corrections, personal


def site(rng, n, flip=False, d=4):
    x = rng.normal(size=(n, d))
    y = (x @ np.linspace(1, 2, d) + rng.logistic(size=n) > 0).astype(int)
    return x, 1 - y if flip else y


@pytest.fixture(scope="module", name="fitted")
def fitted_():
    rng = np.random.default_rng(0)
    data = {f"c{i}": site(rng, 150) for i in range(5)} | {"other": site(rng, 150, flip=True), "tiny": site(rng, 12)}
    return FedAvg(random_state=0).fit(data)


def test_a_client_that_labels_otherwise_keeps_a_model_of_its_own(fitted):
    x, y = site(np.random.default_rng(1), 2000, flip=True)
    assert log_loss(y, fitted.predict_proba(x, client="other")) < 0.5 * log_loss(y, fitted.predict_proba(x))
    assert fitted.comparison_["other"]["kept"] < fitted.comparison_["other"]["shared"] - 0.3


def test_clients_that_label_alike_gain_from_the_others(fitted):
    x, y = site(np.random.default_rng(2), 4000)
    for name in ("c0", "c1", "c2", "c3", "c4"):
        alone = LogisticRegression().fit(*fitted_rows()[name])
        assert log_loss(y, fitted.predict_proba(x, client=name)) < 1.05 * log_loss(y, alone.predict_proba(x))


def fitted_rows():
    rng = np.random.default_rng(0)
    return {f"c{i}": site(rng, 150) for i in range(5)}


def test_a_client_of_few_rows_stays_near_the_shared_model(fitted):
    x, _ = site(np.random.default_rng(3), 500)
    shared = fitted.predict_proba(x)
    assert np.abs(fitted.predict_proba(x, client="tiny") - shared).mean() < 0.1


def test_gain_is_what_the_comparison_says(fitted):
    assert set(fitted.gain_) == set(fitted.comparison_)
    for name, row in fitted.comparison_.items():
        assert fitted.gain_[name] == pytest.approx(row["alone"] - row["kept"])


def test_the_report_shows_each_clients_gain(fitted):
    (table,) = fitted.report_figures().values()
    assert "<td>other</td>" in table
    assert f"{fitted.gain_['other']:+.3f}" in table


def test_probabilities_are_probabilities(fitted):
    proba = fitted.predict_proba(np.array([[1e6, -1e6, 1e6, 1e6], [0, 0, 0, 0]]), client="other")
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-12)


def test_only_losses_for_the_calibration_leave_a_client():
    rng = np.random.default_rng(0)
    data = {f"c{i}": site(rng, 60) for i in range(3)}
    exchanges = []
    for how in ("none", "auto"):
        fed = up.federate(data)
        FedAvg(personalize=how, random_state=0).fit(fed)
        exchanges.append([(e.question, e.kind, e.bytes_up) for e in fed.journal.exchanges])
    more = exchanges[1][len(exchanges[0]) :]
    assert exchanges[1][: len(exchanges[0])] == exchanges[0]
    assert [(question, kind) for question, kind, _ in more] == [
        ("learners.calibration_losses", "sum"),
        ("learners.personalise", "tell"),
    ]
    numbers = 1 + calibration.TEMPERATURES.size * calibration.FLOORS.size
    assert more[0][2] == 3 * 8 * numbers
    assert more[1][2] == 0


def test_the_choice_is_off_when_it_is_not_wanted():
    rng = np.random.default_rng(0)
    model = FedAvg(personalize="none", random_state=0).fit({"a": site(rng, 60), "b": site(rng, 60, flip=True)})
    x, _ = site(rng, 50)
    np.testing.assert_array_equal(model.predict_proba(x, client="b"), model.predict_proba(x))
    assert model.gain_ == {}


def test_what_is_kept_survives_saving(fitted, tmp_path):
    x, _ = site(np.random.default_rng(5), 20)
    again = up.load(fitted.save(tmp_path))
    np.testing.assert_array_equal(again.predict_proba(x, client="other"), fitted.predict_proba(x, client="other"))


@pytest.mark.parametrize(
    "make", [lambda: IFCA(2, lr=0.3, max_iter=10, random_state=0), lambda: up.FedGMM(2, max_iter=20)]
)
def test_models_of_several_parts_let_clients_choose_too(make):
    rng = np.random.default_rng(0)
    data = {f"c{i}": site(rng, 120, flip=i == 0) for i in range(4)}
    model = make()
    model.random_state = 0
    model.fit(data)
    x, y = site(np.random.default_rng(6), 1000, flip=True)
    assert log_loss(y, model.predict_proba(x, client="c0")) < 0.5
    assert set(model.gain_) == set(data)


def test_alone_is_a_regression_whose_penalty_was_cross_validated():
    rng = np.random.default_rng(0)
    x, y = site(rng, 300)
    model = LocalOnly(random_state=0).fit({"a": (x, y), "b": site(rng, 40)})
    new = site(np.random.default_rng(8), 3000)
    peer = LogisticRegression().fit(x, y)
    assert log_loss(new[1], model.predict_proba(new[0], client="a")) < 1.02 * log_loss(
        new[1], peer.predict_proba(new[0])
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_corrections_of_nothing_are_ridge_regressions(classes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = (x @ rng.normal(size=(3, classes)) + rng.gumbel(size=(200, classes))).argmax(1)
    z = np.c_[x, np.ones(200)]
    ridge = np.array([[[500.0, 500.0, 500.0, 1e-9]], [[5.0, 5.0, 5.0, 1e-9]]])
    problem = corrections.Paths(z, y, np.ones((1, 200)), np.zeros((1, 200, classes)), np.zeros(1, int), ridge)
    found = corrections.fit(problem)[-1, 0, 0]
    C = 2 / 5 if classes == 2 else 1 / 5  # two scores of opposite sign share the penalty
    peer = LogisticRegression(C=C, tol=1e-10, max_iter=5000).fit(x, y)
    ours = found[:-1].T - found[:-1].mean(1)
    theirs = peer.coef_ if classes == 3 else np.vstack([-peer.coef_, peer.coef_]) / 2
    np.testing.assert_allclose(ours, theirs, atol=5e-3)


def test_a_correction_under_a_strong_penalty_is_the_offset():
    rng = np.random.default_rng(0)
    offsets = rng.normal(size=(1, 50, 3))
    y, w, ridge = rng.integers(3, size=50), np.ones((1, 50)), np.full((1, 1, 2), 1e9)
    problem = corrections.Paths(np.ones((50, 2)), y, w, offsets, np.zeros(1, int), ridge)
    np.testing.assert_allclose(corrections.fit(problem), 0.0, atol=1e-6)


def test_weights_settle_on_the_better_candidate_with_rows_and_stay_at_the_prior_without():
    prior = np.array([0.8, 0.2])
    losses = np.column_stack([np.full(200, 0.9), np.full(200, 0.5)])
    assert personal.averaged(prior, losses, np.ones(200))[1] > 0.95
    np.testing.assert_allclose(personal.averaged(prior, losses[:0], np.ones(0)), prior)
