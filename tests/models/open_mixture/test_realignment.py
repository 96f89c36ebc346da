"""The second alignment: offsets are estimated again while rows keep the clusters that were found."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled.models.open_mixture.candidates import GAUSSIANS, gaussian_candidate
from unpooled.models.open_mixture.questions import FACTOR, OFFSET
from unpooled.models.open_mixture.realignment import (
    PROBABILITIES,
    REALIGNED,
    assign_rows,
    keep_realigned,
    one_gaussian_each,
    realign,
    realign_sites,
)
from unpooled.models.open_mixture.several_gaussians import as_clusters
from unpooled.models.open_mixture.site_questions import Reference

CENTRES = np.array([[-4.0, 0.0, 0.0], [4.0, 1.0, 0.0]])
TRUTH = 0.4 * np.random.default_rng(1).normal(size=(8, 3))
NAMES = [f"c{i}" for i in range(8)]


def clusters():
    covs = np.stack([np.eye(3)] * 2)
    return as_clusters(gaussian_candidate("full-2", GAUSSIANS, "full", np.ones(2), CENTRES, covs))


def moved(factor=None):
    """Clients of 150 rows whose shares of two clusters differ, moved by `TRUTH`, and divided by `factor` (clients, columns)."""
    rng = np.random.default_rng(0)
    data = {}
    for i, share in enumerate(np.linspace(0.05, 0.95, 8)):
        y = (rng.random(150) < share).astype(int)
        rows = CENTRES[y] + rng.normal(size=(150, 3))
        data[NAMES[i]] = TRUTH[i] + (rows if factor is None else rows / factor[i])
    return data


def realigned(data, states, mode="stacked"):
    """(offsets (clients, d), their standard deviations) after an alignment of clients with these states."""
    fed = up.federate(data, mode=mode)
    for client in fed.here():
        client.state = dict(states.get(client.name, {}))
    scale = realign_sites(fed, clusters(), 1200.0, np.full(3, 0.3), ())
    assert not {PROBABILITIES, REALIGNED} & {key for client in fed.here() for key in client.state}
    return np.stack([client.state[OFFSET] for client in fed.here()]), scale


@pytest.mark.parametrize("mode", ["stacked", "one by one"])
def test_wrong_offsets_are_put_right(mode):
    wrong = {name: {OFFSET: np.array([0.8, -0.5, 0.5])} for name in NAMES}
    found, scale = realigned(moved(), wrong, mode)
    assert np.abs((found - found.mean(0)) - (TRUTH - TRUTH.mean(0))).max() < 0.3
    assert_allclose(scale, TRUTH.std(0), atol=0.12)


def test_stacked_and_one_by_one_agree():
    states = {name: {OFFSET: np.zeros(3)} for name in NAMES}
    (stacked, one), (by_one, other) = (realigned(moved(), states, mode) for mode in ("stacked", "one by one"))
    assert_allclose(stacked, by_one, atol=1e-9)
    assert_allclose(one, other, rtol=1e-8)


def test_factors_stay_and_offsets_are_of_stretched_rows():
    factor = np.exp(0.2 * np.random.default_rng(2).normal(size=(8, 3)))
    states = {name: {OFFSET: np.zeros(3), FACTOR: own} for name, own in zip(NAMES, factor)}
    found, _ = realigned(moved(factor), states)
    truth = TRUTH * factor
    assert np.abs((found - found.mean(0)) - (truth - truth.mean(0))).max() < 0.3


def test_rows_with_gaps_are_realigned_too():
    data = moved()
    for rows in data.values():
        rows[::4, 2] = np.nan
    found, _ = realigned(data, {name: {OFFSET: np.zeros(3)} for name in NAMES})
    assert np.abs((found - found.mean(0)) - (TRUTH - TRUTH.mean(0))).max() < 0.35


def test_a_client_that_was_not_told_of_the_clusters_keeps_its_offset():
    own = np.array([0.3, -0.2, 0.1])
    fed = up.federate(moved(), mode="one by one")
    for client in fed.here():
        client.state = {OFFSET: own}
    final = clusters()
    fed.tell(assign_rows.using(shape="full", id=final.state_id, common_weights=False), final.proposal)
    del fed.here()[0].state[PROBABILITIES]
    one_each = one_gaussian_each(final, 1200.0)
    reference = Reference(one_each.proposal, np.full(3, 0.1), np.zeros(3), np.zeros(3))
    assert float(fed.sum(realign.using(shape="full"), reference).clients) == len(NAMES) - 1
    fed.tell(keep_realigned, np.zeros(3))
    changed = [not np.array_equal(client.state[OFFSET], own) for client in fed.here()]
    assert changed == [False] + [True] * (len(NAMES) - 1)


def test_a_cluster_of_several_gaussians_has_their_mean_and_covariance():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 2))
    c = gaussian_candidate("full-3", GAUSSIANS, "full", np.array([1.0, 3.0, 2.0]), means, np.stack([np.eye(2)] * 3))
    topics = np.array([[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
    one = one_gaussian_each(c._replace(proposal=c.proposal._replace(topics=topics)), 6.0).proposal.params
    assert_allclose(one.means, topics @ means)
    assert_allclose(one.weights, [4 / 6, 2 / 6], rtol=1e-6)
    away = means[:2] - one.means[0]
    expected = np.eye(2) + topics[0, :2] * away.T @ away
    assert_allclose(one.covs[0], expected[np.tril_indices(2)], rtol=1e-4)


@pytest.mark.slow
def test_the_search_starts_anew_where_sites_have_offsets():
    rng = np.random.default_rng(3)
    y = {name: rng.choice(2, 60, p=[share, 1 - share]) for name, share in zip(NAMES, rng.beta(0.5, 0.5, 8))}
    data = {name: 2.5 * y[name][:, None] + rng.normal(size=(60, 5)) + 0.5 * rng.normal(size=5) for name in NAMES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, other = (
            up.OpenMixture(random_state=0).fit(up.federate(data, mode=m)) for m in ("stacked", "one by one")
        )
    assert_allclose(model.means_, other.means_, atol=1e-8)
    assert all(np.array_equal(model.labels_[name], other.labels_[name]) for name in NAMES)
    phases = [line["phase"] for line in model.history_]
    first_end = len(phases) - phases[::-1].index("search") - 1
    assert phases.count("search") == 2 * 12
    assert phases[0] == phases[first_end] == "search"
    found = adjusted_rand_score(np.concatenate(list(y.values())), np.concatenate([model.labels_[n] for n in NAMES]))
    assert found > 0.9
