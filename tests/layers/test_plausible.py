"""A client that lies about its rows is refused and named; one that dominates is warned about."""

from typing import NamedTuple

import numpy as np
import pytest

import unpooled as up
from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter, DataWarning
from unpooled.layers.plausible import Plausible


class Count(NamedTuple):
    n: Float[Array, "k", ">=0 rows"]


@client("plausible.count", SUM, batched=False)
def count(factor: Float[Array, ""], client: Client) -> tuple[Count, ...]:
    lie = float(factor) if client.name == "mallory" else 1.0
    return (Count(np.array([client.w.sum() * lie])),)


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 2))


SITES = {name: rows(50) for name in ("basel", "geneva", "mallory")}


def test_a_count_above_the_rows_that_were_declared_is_refused_and_named():
    fed = Plausible(up.federate(SITES))
    assert fed.sum(count, np.asarray(1.0))[0].n == 150
    assert fed.sum(count, np.asarray(40.0))[0].n == 100
    (refusal,) = fed.journal.refusals
    assert refusal.client == "mallory"
    assert "counts 2000 rows and declared 50" in refusal.reason


def test_a_share_above_max_share_is_left_out():
    fed = Plausible(up.federate({**SITES, "mallory": rows(5000)}), max_share=0.6)
    with pytest.warns(DataWarning, match="'mallory' brings 98% of all rows"):
        fed.sum(count, np.asarray(1.0))
    assert fed.sum(count, np.asarray(1.0))[0].n == 100
    assert "max_share=0.6" in fed.journal.refusals[-1].reason


def test_shares_are_reported_and_results_do_not_change():
    data = {name: np.random.default_rng(i).normal(size=(40, 2)) for i, name in enumerate("abcd")}
    model = {"init_params": "random", "random_state": 0, "max_iter": 5, "tol": 0.5}
    fed = Plausible(up.federate(data))
    looked = up.GaussianMixture(2, **model).fit(fed)
    plain = up.GaussianMixture(2, **model).fit(up.federate(data))
    np.testing.assert_allclose(looked.means_, plain.means_, rtol=1e-12)
    assert fed.shares == dict.fromkeys("abcd", 0.25)


def test_a_share_that_is_none_is_refused():
    with pytest.raises(BadParameter, match="max_share=0 must be above 0"):
        Plausible(up.federate(SITES), max_share=0)
