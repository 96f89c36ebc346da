"""A client that lies about its rows is refused and named; one that dominates is warned about."""

from typing import NamedTuple

import numpy as np
import pytest

import unpooled as up
from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter, DataWarning
from unpooled.layers.moments import impossible
from unpooled.layers.plausible import Plausible
from unpooled.maths import bayes_linear, mixture


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


# ---- moments that no rows can have ----


@client("plausible.e_step", SUM, batched=False)
def lying_e_step(params: mixture.Params, client: Client, *, shape: str = "full", lie: str = "") -> mixture.Stats:
    stats = mixture.e_step(params, client.x, client.w, shape)
    if client.name != "mallory":
        return stats
    if lie == "spread":
        return stats._replace(xx=stats.xx * 0.01)
    if lie == "mean":
        return stats._replace(x=stats.x + 40 * stats.n[:, None], xx=stats.xx + 1e6)
    return stats


def params_of(shape: str, k: int = 3) -> mixture.Params:
    covs = {"full": (k, 3), "tied": (3,), "diag": (k, 2), "spherical": (k,)}[shape]
    eye = np.broadcast_to(np.array([1.0, 0.0, 1.0]), covs) if covs[-1] == 3 and shape != "spherical" else np.ones(covs)
    return mixture.Params(np.full(k, 1 / k), np.random.default_rng(0).normal(size=(k, 2)) + 5, np.array(eye))


@pytest.mark.parametrize("shape", ["full", "tied", "diag"])
def test_second_moments_that_no_rows_have_are_refused_and_named(shape):
    fed = Plausible(up.federate(SITES))
    fed.sum(lying_e_step.using(shape=shape, lie="spread"), params_of(shape, 2))
    (refusal,) = fed.journal.refusals
    assert refusal.client == "mallory"
    assert "second moments below what its sums allow" in refusal.reason


@pytest.mark.parametrize("shape", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_honest_moments_pass(shape, k):
    single = {name: x.astype(np.float32) for name, x in SITES.items()}
    for sites in (SITES, single):
        fed = Plausible(up.federate(sites), ranges={"0": (-9, 9), "1": (-9, 9)})
        fed.sum(lying_e_step.using(shape=shape), params_of(shape, k))
        assert fed.journal.refusals == []


def test_means_outside_declared_ranges_are_refused():
    fed = Plausible(up.federate(SITES), ranges={"0": (-9, 9), "1": (-9, 9)})
    fed.sum(lying_e_step.using(lie="mean"), params_of("full"))
    (refusal,) = fed.journal.refusals
    assert "means outside the declared ranges" in refusal.reason


def test_regressions_are_looked_at_too():
    stats = bayes_linear.Stats(*(np.array(v) for v in (10.0, [5.0], [3.0], [30.0], [[10.0]], [20.0])), *EMPTY)
    assert impossible(stats, None, None) == ""
    assert "second moments" in impossible(stats._replace(zz=np.array([2.0])), None, None)
    assert "second moments" in impossible(stats._replace(yy=np.array([0.1])), None, None)


EMPTY = np.zeros(0), np.zeros((1, 0)), np.zeros((0, 1))


@pytest.mark.parametrize("model", [up.BayesianRegression(), up.FedBNR(max_iter=2, random_state=0)])
def test_an_honest_regression_passes(model):
    rng = np.random.default_rng(3)
    sites = {name: (x := rng.normal(50, 3, size=(30, 4)), x @ [1.0, 2.0, 0.0, -1.0]) for name in "abc"}
    fed = Plausible(up.federate(sites))
    model.fit(fed)
    assert fed.journal.refusals == []
    assert fed.rows == dict.fromkeys("abc", 30.0)
