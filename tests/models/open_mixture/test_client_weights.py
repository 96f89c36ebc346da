"""A client's own mixing weights: EM raises the likelihood, and clusters that BIC does not justify are removed."""

import numpy as np
import pytest

from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.client_weights import Proposal, local_em, sparse_shares

CENTRES = 7.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0.5]])


def test_em_on_the_shares_raises_the_likelihood_and_they_sum_to_one():
    rng = np.random.default_rng(1)
    proposal = Proposal(Params(np.ones(3) / 3, CENTRES[:3], np.ones(3)), np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    x, w = CENTRES[rng.choice([0, 2], 80)] + rng.normal(size=(80, 2)), np.ones(80)
    logliks, shares = [], None
    for _ in range(6):
        stats, topic_counts, shares = local_em(proposal, x, w, "spherical", shares)
        logliks.append(float(stats.loglik))
        assert topic_counts.sum() == pytest.approx(80)
        assert shares.sum() == pytest.approx(1.0)
    assert np.all(np.diff(logliks) >= -1e-9)


def rows_of_two_clusters():
    """(densities, maximum-likelihood shares) of forty rows near two centres, one row nearer to a third, and one at a far fourth."""
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [11.0, 0.0], [0.0, 30.0]])
    x = np.concatenate([centres[np.arange(40) % 2] + rng.normal(size=(40, 2)), [[10.9, 0.0]], [[0.0, 30.0]]])
    density = np.exp(-((x[:, None] - centres) ** 2).sum(-1) / 2)
    shares = np.full(4, 0.25)
    for _ in range(500):
        joint = density * shares
        shares = (joint / joint.sum(1, keepdims=True)).mean(0)
    return density, shares


def test_a_cluster_that_bic_does_not_justify_is_removed():
    density, likeliest = rows_of_two_clusters()
    assert np.all(likeliest * 42 > 0.5)  # by likelihood alone the client holds all four
    shares = sparse_shares(density, np.ones(42), None)
    np.testing.assert_allclose(shares, [20 / 42, 21 / 42, 0, 1 / 42], atol=1e-3)
    loss = np.log(density @ likeliest).sum() - np.log(density @ shares).sum()
    assert 0 < loss < np.log(42) / 2


def test_shares_of_justified_clusters_are_those_of_maximum_likelihood():
    density, likeliest = rows_of_two_clusters()
    again = sparse_shares(density[:, [0, 1, 3]], np.ones(42), likeliest[[0, 1, 3]])
    joint = density[:, [0, 1, 3]] * again
    np.testing.assert_allclose((joint / joint.sum(1, keepdims=True)).mean(0), again, atol=1e-8)


def test_stacked_clients_and_rows_without_weight():
    density, _ = rows_of_two_clusters()
    w = np.stack([np.ones(42), np.arange(42) < 30, np.arange(42) % 2])
    stacked = sparse_shares(np.stack([density] * 3), w, None)
    for shares, weight in zip(stacked, w):
        used = weight > 0
        np.testing.assert_allclose(shares, sparse_shares(density[used], np.ones(used.sum()), None), atol=1e-12)
    np.testing.assert_allclose(sparse_shares(density, np.zeros(42), None), 0.25)  # no rows to learn from


def test_identical_clusters_are_not_all_removed():
    density, _ = rows_of_two_clusters()
    shares = sparse_shares(density[:, [0, 1, 2, 2, 3]], np.ones(42), None)
    np.testing.assert_allclose(shares, [20 / 42, 21 / 42, 0, 0, 1 / 42], atol=1e-3)
    np.testing.assert_allclose(sparse_shares(density[:, [1, 1]], np.ones(42), None).sum(), 1.0)
