"""Every public estimator over Flower's message types: the model is the one in process."""

import warnings

import numpy as np
import pytest
from conftest import make_tables
from flower_grid import flower
from model_cases import GRADIENT, build, case, clients, distance, estimators

from unpooled import FedBNR
from unpooled.client import Client
from unpooled.errors import DataWarning
from unpooled.local import Local

QUICK = ("GaussianMixture", "FedAvg", "FedConceptEM", "FedBNR", "FedMissEM", "FedGMM")
MODELS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in estimators()]


@pytest.mark.parametrize("name", MODELS)
def test_the_model_over_flower_is_the_model_in_process(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few rounds do not converge, and say so
        here = build(name).fit(Local(clients(name, make_tables()), mode="one by one", threads=1))
        fed = flower(clients(name, make_tables()))
        there = build(name).fit(fed)
    assert fed.journal.refusals == []
    assert distance(here, there) <= case(name).rtol


def test_whole_clients_left_out_and_groups_over_flower_are_those_in_process():
    rng = np.random.default_rng(0)
    day = rng.integers(0, 100, size=900)
    x = np.column_stack([rng.uniform(-2, 2, 900), np.round(40 + 10 * rng.normal(size=100), 2)[day]])
    y = np.sin(2 * x[:, 0]) + rng.normal(size=100)[day] + 0.2 * rng.normal(size=900)
    sites = lambda: [Client(f"site-{i}", x[i::6], y[i::6]) for i in range(6)]  # noqa: E731
    model = lambda: FedBNR(n_frequencies=10, max_iter=3, recalibrate="clients", group_by=1, random_state=0)  # noqa: E731
    with pytest.warns(DataWarning, match="intervals for clients never seen rest on 6 clients"):
        here = model().fit(Local(sites(), mode="one by one", threads=1))
    fed = flower(sites())
    with pytest.warns(DataWarning, match="intervals for clients never seen rest on 6 clients"):
        there = model().fit(fed)
    assert fed.journal.refusals == []
    assert there.histogram_.sum() == 900
    assert distance(here, there) <= GRADIENT
