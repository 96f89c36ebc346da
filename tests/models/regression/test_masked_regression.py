"""Every question of the regressions is a SUM: a fit under masks is the plain fit."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up

MODELS = {
    "BayesianRegression": lambda: up.BayesianRegression(recalibrate=True),
    "BayesianRegression with groups": lambda: up.BayesianRegression(degree=2, group_by=2),
    "BayesianRegression for new clients": lambda: up.BayesianRegression(recalibrate="clients"),
    "FedBNR exact": lambda: up.FedBNR(n_frequencies=8, max_iter=2, optimizer="adam", group_by=2, random_state=0),
    "FedBNR by default": lambda: up.FedBNR(max_iter=2, random_state=0),
    "FedBNR average": lambda: up.FedBNR("average", n_frequencies=8, max_iter=2, local_epochs=2, random_state=0),
}


def data(clients=10):
    rng = np.random.default_rng(0)
    day = rng.integers(0, 15, size=(clients, 40))
    x = np.concatenate([rng.normal(size=(clients, 40, 2)), np.round(np.cos(day), 3)[..., None]], -1)
    y = np.sin(x[..., 0]) + x[..., 1] + 0.2 * rng.normal(size=day.shape)
    return {f"c{c}": (x[c], y[c]) for c in range(clients)}


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_under_masks_is_the_plain_fit(name):
    plain = up.federate(data())
    masked = up.federate(data())
    x = np.concatenate([rows for rows, _ in data().values()])
    expected, found = MODELS[name]().fit(plain), MODELS[name]().fit(up.SecureSum(masked))
    for a, b in zip(expected.predict(x, return_std=True), found.predict(x, return_std=True)):
        assert_allclose(b, a, rtol=1e-10, atol=1e-10)
    for a, b in zip(expected.interval(x, 0.8), found.interval(x, 0.8)):
        assert_allclose(b, a, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore:clients left out", "ignore:intervals for clients never seen")
def test_clients_are_left_out_under_masks_as_without():
    make = lambda: up.FedBNR(recalibrate="clients", n_frequencies=8, max_iter=2, random_state=0)  # noqa: E731
    plain, masked = make().fit(up.federate(data())), make().fit(up.SecureSum(up.federate(data())))
    assert_allclose(masked.histogram_, plain.histogram_)
    assert_allclose(masked.design_effect_, plain.design_effect_, rtol=1e-8)
