"""Every public estimator over Flower's message types: the model is the one in process."""

import warnings

import pytest
from conftest import make_tables
from flower_grid import flower
from model_cases import build, case, clients, distance, estimators

from unpooled.local import Local


@pytest.mark.parametrize("name", estimators())
def test_the_model_over_flower_is_the_model_in_process(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few rounds do not converge, and say so
        here = build(name).fit(Local(clients(name, make_tables()), mode="one by one", threads=1))
        fed = flower(clients(name, make_tables()))
        there = build(name).fit(fed)
    assert fed.journal.refusals == []
    assert distance(here, there) <= case(name).rtol
