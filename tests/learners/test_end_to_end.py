"""Torch modules through whole fits: convolutions, a module of one's own, and BatchNorm that stays with its client."""

import numpy as np
import pytest
from torch import nn

import unpooled as up
from unpooled.baselines import FedAvg, FedEM
from unpooled.data.federate import federate
from unpooled.errors import BadParameter

SMALL = {"max_iter": 2, "batch_size": 8, "lr": 0.05, "random_state": 0}


def pictures(clients=3, n=14, side=16, seed=0):
    rng = np.random.default_rng(seed)
    return {f"c{i}": (rng.random((n + i, side * side)), rng.integers(3, size=n + i)) for i in range(clients)}


def own_module(inputs, classes):
    return nn.Sequential(nn.Linear(inputs, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, classes))


@pytest.mark.parametrize("make", [FedAvg, lambda **o: FedEM(2, **o)])
def test_a_cnn_trains_the_same_stacked_and_one_by_one(make):
    feds = [federate(pictures(), mode=mode, threads=1) for mode in ("stacked", "one by one")]
    a, b = (make(learner="cnn", **SMALL).fit(fed) for fed in feds)
    assert not feds[0].journal.refusals
    np.testing.assert_allclose(a.theta_, b.theta_, atol=1e-5)
    x = pictures()["c1"][0]
    np.testing.assert_allclose(a.predict_proba(x, client="c1"), b.predict_proba(x, client="c1"), atol=1e-4)


@pytest.mark.parametrize("norm", ["group", "average", "local"])
def test_a_module_of_ones_own_with_every_way_of_batch_norm(norm):
    rows = {name: (x[:, :20], y) for name, (x, y) in pictures().items()}
    fed = federate(rows)
    model = FedAvg(learner=own_module, norm=norm, **SMALL).fit(fed)
    assert not fed.journal.refusals
    p = [model.predict_proba(rows["c0"][0], client=name) for name in ("c0", "c1")]
    assert np.allclose(*p) == (norm != "local")  # only under "local" does each client have a model of its own


def test_what_stays_with_a_client_is_not_in_what_it_sends():
    rows = {name: (x[:, :20], y) for name, (x, y) in pictures().items()}
    model = FedAvg(learner=own_module, norm="local", **SMALL).fit(rows)
    start = next(FedAvg(learner=own_module, norm="local", **SMALL).rounds(federate(rows))).state.theta
    from unpooled.learners import Trainer

    places = list(Trainer(**model.trainer_).net.stays)
    np.testing.assert_allclose(model.theta_[:, places], start[:, places], atol=1e-6)
    assert np.abs(model.clients_["c0"]["norm"] - start[:, places]).max() > 1e-4


def test_fedgmm_with_convolutions_and_principal_axes():
    model = up.FedGMM(2, 2, learner="cnn", embedding=4, warmup=1, reg_covar=1e-3, **SMALL | {"max_iter": 3}).fit(
        pictures()
    )
    x, y = pictures()["c2"]
    assert np.isfinite(model.log_joint(x, y, client="c2")).all()
    assert np.isfinite(model.adapt(x, y).predict_proba(x)).all()


def test_a_learner_that_does_not_fit_is_refused_before_any_round():
    with pytest.raises(BadParameter, match=r"gives .* outputs a row, but there are 3 classes"):
        FedAvg(learner=lambda inputs, classes: nn.Linear(inputs, 7)).fit(pictures())
    with pytest.raises(BadParameter, match="no square images"):
        FedAvg(learner="cnn").fit({name: (x[:, :20], y) for name, (x, y) in pictures().items()})
