"""What hides something is drawn from a secret of the node, not from the coordinator's seed."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
from memory import MemoryTransport

import unpooled as up
from unpooled.client import Client, generator
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import Remote

ROWS = {name: np.random.default_rng(i).normal(i, 1.0, size=(200, 2)) for i, name in enumerate("abc")}


def model():
    return up.VRFedEM({"name": "gaussian", "n_components": 2}, batch_size=32, max_iter=3, tol=0.0, random_state=0)


def fit(vaults, network):
    rules = Policy(network=network)
    sites = [Site(n, Source(Client(n, ROWS[n]), ["x", "y"]), vaults[n], policy=lambda: rules) for n in ROWS]
    fed = Remote(MemoryTransport(sites), names=list(ROWS), columns=["x", "y"], wait=2, timeout=2)
    return model().fit(fed).params_.means


def test_batches_of_a_node_cannot_be_told_from_the_seed():
    vaults = {name: {} for name in ROWS}
    first = fit(vaults, network=True)
    assert np.array_equal(first, fit({n: {"secret": v["secret"]} for n, v in vaults.items()}, network=True))
    assert not np.array_equal(first, fit({name: {} for name in ROWS}, network=True)), "other secrets, other rows"


def test_a_simulated_node_draws_as_a_client_in_this_process_does():
    local = model().fit(ROWS)
    np.testing.assert_allclose(local.params_.means, fit({name: {} for name in ROWS}, network=False), rtol=1e-12)


def test_hidden_draws_differ_by_client_round_and_secret():
    client = Client("a", np.zeros((1, 1)), moment=(1, 2))
    hidden = [
        Client("a", np.zeros((1, 1)), moment=(1, 2), draws=s).secret_rngs[0].random() for s in (b"x" * 32, b"y" * 32)
    ]
    others = [
        Client(n, np.zeros((1, 1)), moment=(1, r), draws=b"x" * 32).secret_rngs[0].random()
        for n, r in (("b", 2), ("a", 3))
    ]
    assert len({*hidden, *others, client.secret_rngs[0].random()}) == 5
    assert Client("a", np.zeros((1, 1)), moment=(1, 2)).secret_rngs[0].random() == generator(1, 2, "a").random()
