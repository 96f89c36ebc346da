"""Models that train learners ask nothing but sums, so that masks can hide each client's answer."""

import numpy as np
import pytest

import unpooled as up
from unpooled.baselines.fedavg import FedAvg
from unpooled.layers.secure import SecureSum

MODELS = {
    "FedAvg": lambda: FedAvg(random_state=0),
    "FedAvg sgd": lambda: FedAvg(lr=0.1, max_iter=2, random_state=0),
    "FedConceptEM": lambda: up.FedConceptEM(2, lr=0.1, max_iter=2, random_state=0),
    "FedGMM": lambda: up.FedGMM(2, 2, max_iter=6, init_params="cells", random_state=0),
}


def labelled_rows():
    rng = np.random.default_rng(0)
    rows = {f"c{i}": rng.normal(size=(40, 3)) for i in range(4)}
    return {name: (x, np.where(x[:, 0] > 0, "yes", "no")) for name, x in rows.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_under_masks_is_the_plain_one(name):
    fed = SecureSum(up.federate(labelled_rows()))
    masked, plain = MODELS[name]().fit(fed), MODELS[name]().fit(labelled_rows())
    np.testing.assert_allclose(masked.theta_, plain.theta_, rtol=1e-9, atol=1e-9)
    assert {e.kind for e in fed.journal.exchanges} == {"sum", "keys", "tell"}  # nothing comes back of a tell
