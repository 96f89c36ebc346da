"""Personal models with lr="auto" go back when a round made them much worse."""

import numpy as np
import pytest

from unpooled.baselines.apfl import personal_round
from unpooled.baselines.fedavg import Model
from unpooled.baselines.pfedme import moreau_round
from unpooled.baselines.rollback import keep_best, much_worse
from unpooled.client import Client
from unpooled.learners import Trainer


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = (x.sum(1) + rng.normal(size=60) > 0).astype(int)
    client = Client("a", x, y, state={})
    learner = Trainer("linear", 2, [0, 1])
    return learner, client, learner.rows(client)


def theta(slope):
    return np.array([[0.0, 0, 0, slope, slope, 0]])


@pytest.mark.parametrize(("after", "worse"), [(1.2, False), (0.95, False), (-1.0, True), (np.nan, True)])
def test_a_model_that_lost_much_is_found(case, after, worse):
    assert bool(much_worse(*case, theta(1.0), theta(after)).squeeze()) is worse


def test_the_best_model_stays(case):
    _, client, _ = case
    assert (keep_best(client, theta(2.0), np.array(-10.0)) == theta(2.0)).all()
    assert (keep_best(client, theta(9.0), np.array(-50.0)) == theta(2.0)).all()  # much worse: go on from the best one
    assert (keep_best(client, theta(3.0), np.array(-10.5)) == theta(3.0)).all()  # hardly worse: go on
    assert (client.state["best"] == theta(2.0)).all()


@pytest.mark.parametrize("name", ["apfl", "pfedme"])
def test_a_round_at_a_rate_that_diverges_leaves_the_personal_model(case, name):
    learner, client, _ = case
    wild = learner._replace(lr=1e6, epochs=3, batch_size=10)._asdict()
    own = {"apfl": "own", "pfedme": "theta"}[name]
    client.state |= {own: theta(1.0), "alpha": np.full((1, 1), 0.5)}
    if name == "apfl":
        ask, options = personal_round, {"alpha": 0.5, "adaptive": True}
    else:
        ask, options = moreau_round, {"lam": 15.0, "eta": 0.01, "inner_steps": 5}
    with np.errstate(all="ignore"):
        ask.answer(Model(theta(1.0)), client, trainer=wild, roll_back=True, **options)
    np.testing.assert_allclose(client.state[own], theta(1.0))
