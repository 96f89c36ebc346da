"""A linear learner with lr="auto" is scikit-learn's pooled LogisticRegression, however rows are split into clients."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import unpooled as up
from unpooled.baselines import FedAvg, FedProx
from unpooled.errors import BadParameter
from unpooled.learners import Trainer, exact, left_out, polishing, regularisation


def rows(n=240, d=5, classes=3, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.arange(1, d + 1) + shift
    scores = (x - shift) @ rng.normal(size=(d, classes)) / 3
    return x, (scores + rng.gumbel(size=(n, classes))).argmax(1)


def split(x, y, clients=4, seed=1):
    by = np.random.default_rng(seed).integers(clients, size=len(y))
    return {f"c{i}": (x[by == i], y[by == i]) for i in range(clients)}


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
def test_coefficients_are_those_of_the_pooled_regression(classes, C):
    x, y = rows(classes=classes)
    peer = LogisticRegression(C=C, tol=1e-12, max_iter=20_000).fit(x, y)
    model = FedAvg(C=C, random_state=0).fit(split(x, y))
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(x), peer.predict_proba(x), atol=1e-5)
    assert model.converged_
    assert model.n_iter_ < 20


def test_the_split_into_clients_does_not_matter():
    x, y = rows()
    one, many = (FedAvg(random_state=0).fit(split(x, y, k)) for k in (1, 6))
    np.testing.assert_allclose(one.coef_, many.coef_, rtol=1e-8, atol=1e-10)


def test_columns_far_from_the_origin_take_the_same_steps():
    near, far = (FedAvg(random_state=0).fit(split(*rows(shift=shift))) for shift in (0.0, 1e6))
    np.testing.assert_allclose(near.coef_, far.coef_, atol=1e-6)
    assert near.n_iter_ == far.n_iter_


@pytest.mark.parametrize("classes", [2, 3, 15])
def test_deviations_of_the_columns_come_with_the_first_round(classes):
    x, y = rows(n=600, classes=classes, shift=3.0)
    assert exact.takes_newton_steps(5, classes) == (classes < 15)
    model = FedAvg(random_state=0, personalize="none").fit(split(x, y))
    np.testing.assert_allclose(model.spread_, x.std(0), rtol=1e-9)


def test_l_bfgs_reaches_the_same_point(monkeypatch):
    x, y = rows()
    newton = FedAvg(random_state=0).fit(split(x, y))
    monkeypatch.setattr(exact.newton, "fits", lambda inputs, classes: False)
    lbfgs = FedAvg(random_state=0).fit(split(x, y))
    np.testing.assert_allclose(lbfgs.coef_, newton.coef_, atol=1e-4)
    assert lbfgs.n_iter_ > newton.n_iter_
    assert lbfgs.converged_


def test_the_objective_falls_whenever_a_point_is_accepted():
    x, y = rows(classes=2)
    x = x * 50  # nearly separable: full steps overshoot
    model = FedAvg(C=1e4, personalize="none", random_state=0)
    found = [m.state.objective for m in model.rounds(up.federate(split(x, y)))]
    assert (np.diff([f for f in found if np.isfinite(f)]) <= 1e-9).all()


def test_without_each_row_is_the_refitted_model():
    """One Newton step from the optimum of all rows comes close to the optimum of all but one."""
    x, y = rows(n=150, classes=3)
    model = FedAvg(personalize="none", random_state=0).fit(split(x, y))
    log_p = np.log(model.predict_proba(x))
    inverse, centre = model.optimum_
    left = left_out.without_each(x, y, np.ones(len(y)), log_p, inverse[0], centre)
    for i in (3, 40, 77):
        others = np.arange(len(y)) != i
        again = FedAvg(personalize="none", random_state=0).fit(split(x[others], y[others]))
        refitted = np.log(again.predict_proba(x[i : i + 1]))[0]
        assert np.abs(left[i] - refitted).max() < 0.1 * np.abs(log_p[i] - refitted).max() + 1e-3


def test_the_proximal_variant_ends_at_the_same_optimum():
    x, y = rows()
    np.testing.assert_allclose(
        FedProx(random_state=0).fit(split(x, y)).coef_, FedAvg().fit(split(x, y)).coef_, atol=1e-8
    )


@pytest.mark.parametrize("classes", [2, 4])
def test_the_chosen_penalty_predicts_new_rows_as_well_as_the_best_of_a_grid(classes):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1500, 20))
    y = (x[:, :3] @ rng.normal(size=(3, classes)) + rng.gumbel(size=(1500, classes))).argmax(1)
    model = FedAvg(C="auto", max_iter=300, personalize="none", random_state=0).fit(split(x[:200], y[:200]))
    grid = [LogisticRegression(C=C, max_iter=5000).fit(x[:200], y[:200]) for C in 10.0 ** np.arange(-4, 5)]
    losses = [log_loss(y[200:], peer.predict_proba(x[200:])) for peer in grid]
    assert model.converged_
    assert model.C_ < 1
    assert log_loss(y[200:], model.predict_proba(x[200:])) < min(losses) + 0.02
    fixed = FedAvg(C=model.C_, personalize="none", random_state=0).fit(split(x[:200], y[:200]))
    np.testing.assert_allclose(model.coef_, fixed.coef_, atol=1e-4)


def test_penalties_are_tried_downhill_and_then_in_between():
    def loss(log_c):
        return (log_c + 1.7) ** 2

    tried = np.array([[0.0, loss(0.0)]])
    while (C := regularisation.next_penalty(tried)) is not None:
        tried = np.vstack([tried, [np.log10(C), loss(np.log10(C))]])
    np.testing.assert_allclose(tried[:, 0], [0, 1, -1, -2, -3, -1.7], atol=1e-9)


def test_a_penalty_to_be_chosen_needs_one_linear_model():
    with pytest.raises(BadParameter, match="one linear learner"):
        up.FedConceptEM(C="auto").fit(split(*rows()))
    with pytest.raises(BadParameter, match="C="):
        FedAvg(C="much").fit(split(*rows()))


@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
def test_several_learners_end_at_their_optimum_wherever_they_begin(scale):
    x, y = rows(n=200, classes=3)
    fed = up.federate(split(x, y))
    trainer = Trainer("linear", 5, [0, 1, 2])._asdict()
    start = scale * np.random.default_rng(5).normal(size=(2, 18))
    # equal weights: both see half of each row
    theta, inverse, _ = polishing.polish(fed, start, trainer, "weights", [0, 1], 1.0)
    peer = LogisticRegression(C=0.5, tol=1e-10, max_iter=9000).fit(x, y)
    for own in theta.reshape(2, 3, 6):
        np.testing.assert_allclose(own[:, :-1] - own[:, :-1].mean(0), peer.coef_, atol=1e-3)
    assert np.isfinite(inverse).all()


def test_rows_left_out_by_class_are_close_to_those_by_all_second_derivatives():
    x, y = rows(n=300, classes=4)
    model = FedAvg(personalize="none", random_state=0).fit(split(x, y))
    log_p, (whole, centre), w = np.log(model.predict_proba(x)), model.optimum_, np.ones(len(y))
    second = np.linalg.inv(whole[:, 0])
    parts = second.reshape(1, 3, 6, 3, 6)
    blocks = np.linalg.inv(np.stack([parts.sum((1, 3)), *(parts[:, a, :, a] for a in range(3))], 1))
    exactly, by_class = (
        left_out.without_each(x, y, w, log_p, i[0], centre)[np.arange(300), y] for i in (whole, blocks)
    )
    trained = log_p[np.arange(300), y]
    assert np.corrcoef(exactly - trained, by_class - trained)[0, 1] > 0.95
    np.testing.assert_allclose((by_class - trained).mean(), (exactly - trained).mean(), rtol=0.2)
