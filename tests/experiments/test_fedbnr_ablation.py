"""Ablations of FedBNR: every client has a model, and one client's is FedBNR's."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import unpooled as up
from unpooled.errors import BadParameter

FOLDER = Path(__file__).parents[2] / "experiments" / "fedbnr"
SMALL = {
    "features": "deep",
    "n_frequencies": 12,
    "hidden": (8,),
    "latent_dim": 3,
    "local_epochs": 4,
    "max_iter": 5,
    "recalibrate": False,
}


@pytest.fixture(name="ablated")
def ablated_(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return import_module("_ablation").AblatedBNR


@pytest.fixture(name="rows", scope="module")
def rows_():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(150, 2))
    return x, 10 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * rng.normal(size=150), rng.integers(0, 3, 150)


@pytest.mark.parametrize(
    ("kernel", "last_layer"), [("local", "local"), ("local", "global"), ("average", "local"), ("distill", "local")]
)
def test_ablations_give_every_client_a_model(ablated, rows, kernel, last_layer):
    x, y, by = rows
    settings = SMALL | ({"server_data": (x[::5], y[::5])} if kernel == "distill" else {})
    clients = {f"c{c}": (x[by == c], y[by == c]) for c in range(3)}
    each = ablated(kernel, last_layer, settings=settings, random_state=0).fit(clients).predict_each(x)
    assert sorted(each) == ["c0", "c1", "c2"]
    assert not np.allclose(each["c0"][0], each["c1"][0])
    own = [np.mean((y[by == c] - each[f"c{c}"][0][by == c]) ** 2) for c in range(3)]
    assert max(own) < y.var()


def test_an_ablation_of_one_client_is_fedbnr_itself(ablated, rows):
    x, y, _ = rows
    seed = int(np.random.default_rng(0).integers(2**31))
    whole = up.FedBNR("average", random_state=seed, **SMALL).fit(x, y)
    one = ablated("average", "local", settings=SMALL, random_state=0).fit(x, y)
    np.testing.assert_allclose(one.predict(x, "client-0"), whole.predict(x), rtol=1e-8)
    with pytest.raises(BadParameter, match="FedBNR itself"):
        ablated("average", "global").fit(x, y)
