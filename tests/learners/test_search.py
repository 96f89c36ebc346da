"""lr="auto": the rate is found in the rounds, the run stops by itself, and says so if it did not."""

from typing import NamedTuple

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from unpooled.baselines import FedAvg
from unpooled.learners import search


class State(NamedTuple):
    trainer: dict
    theta: float


def searched(slope, rounds=60):
    """A run whose log-likelihood after a round with a rate is given by `slope(theta, rate)`."""
    found, theta = search.begin(State({"lr": 0.0}, 0.0)), 0.0
    rates = []
    for _ in range(rounds):
        rates.append(found.rate)
        theta = found.inner.theta
        loglik, new = slope(theta, found.rate)
        found = search.advance(found, State(found.inner.trainer, new), loglik, 1e-3)
        if found.stopped:
            break
    return found, rates


def parabola(theta, rate):
    """Gradient ascent on -(theta - 1)^2 - 1; above a rate of 1 it diverges."""
    return -((theta - 1) ** 2) - 1, theta - rate * 2 * (theta - 1)


def test_the_rate_rises_until_the_loss_does_and_the_run_stops_at_the_best():
    found, rates = searched(parabola)
    assert rates[:4] == [0.01, 0.02, 0.04, 0.08]
    assert found.stopped
    assert found.best.theta == pytest.approx(1.0, abs=0.05)


def test_a_diverging_round_goes_back_to_the_best_models():
    found, _ = searched(lambda theta, rate: (np.nan if theta > 0.5 else theta, theta + rate), rounds=12)
    assert np.isfinite(found.loglik)
    assert found.best.theta <= 0.5


def rows(clients=4, n=120, seed=0):
    rng = np.random.default_rng(seed)
    x = {f"c{i}": rng.normal(size=(n, 2)) for i in range(clients)}
    return {name: (a, (a[:, 0] * a[:, 1] > 0).astype(int)) for name, a in x.items()}


def test_a_network_learns_what_no_line_can_without_a_rate():
    data = rows()
    model = FedAvg(learner="mlp", max_iter=150, random_state=0).fit(data)
    x = np.random.default_rng(9).normal(size=(500, 2))
    assert (model.predict(x) == (x[:, 0] * x[:, 1] > 0)).mean() > 0.9
    assert model.converged_
    assert {row["lr"] for row in model.history_} - {search.FIRST_RATE}


def test_it_warns_when_it_had_to_stop_early():
    with pytest.warns(ConvergenceWarning, match="still improved after max_iter=3 rounds"):
        FedAvg(learner="mlp", max_iter=3, random_state=0).fit(rows())


def test_a_given_rate_is_used_as_it_is():
    model = FedAvg(learner="mlp", lr=0.2, max_iter=3, random_state=0).fit(rows())
    assert model.trainer_["lr"] == 0.2
    assert len(model.history_) == 3
