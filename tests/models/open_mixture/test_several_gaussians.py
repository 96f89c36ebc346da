"""Clusters of several Gaussians: those without a mode of their own are parts of the clusters that they overlap with."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.candidates import Candidate
from unpooled.models.open_mixture.client_weights import Proposal, common_shares
from unpooled.models.open_mixture.several_gaussians import as_clusters, have_modes, n_clusters

MEANS = np.array([[0.0, 0.0], [5.0, 0.0], [2.0, 0.5], [0.1, 0.0]])
WEIGHTS, VARIANCES = np.array([0.4, 0.3, 0.1, 0.2]), np.array([1.0, 1.0, 9.0, 1.5])


def mixture(structure="shared"):
    topics = WEIGHTS[None] if structure == "shared" else np.zeros((0, 4))
    params = Params(WEIGHTS, MEANS, VARIANCES)
    return Candidate("spherical-4", structure, "spherical", Proposal(params, topics))


def test_a_gaussian_has_a_mode_unless_another_is_twice_as_dense_at_its_mean():
    density = np.stack([w * multivariate_normal(m, v).pdf(MEANS) for w, m, v in zip(WEIGHTS, MEANS, VARIANCES)], 1)
    np.testing.assert_array_equal(have_modes(mixture()), density.max(1) <= 2 * np.diag(density))
    assert have_modes(mixture()).tolist() == [
        True,
        True,
        False,
        False,
    ]  # a wide one between two, and one around another
    assert n_clusters(mixture()) == n_clusters(mixture("gaussians")) == 2


@pytest.mark.parametrize("structure", ["shared", "gaussians"])
def test_other_gaussians_are_parts_of_the_clusters_and_no_row_is_lost(structure):
    joined = as_clusters(mixture(structure))
    topics = joined.proposal.topics
    np.testing.assert_allclose(topics.sum(1), 1.0)
    shares = common_shares(topics, WEIGHTS)
    np.testing.assert_allclose(shares @ topics, WEIGHTS)
    parts = shares[:, None] * topics / WEIGHTS  # of each Gaussian, in each cluster
    assert parts[0, 3] > 0.99  # around the first cluster
    assert 0.3 < parts[0, 2] < 0.8  # between the two


def test_where_every_gaussian_is_a_cluster_nothing_changes():
    params = Params(np.ones(3) / 3, 7.0 * np.eye(3), np.ones(3))
    same = as_clusters(Candidate("spherical-3", "gaussians", "spherical", Proposal(params, np.zeros((0, 3)))))
    np.testing.assert_array_equal(same.proposal.topics, np.eye(3))
    assert same.id == "spherical-3"
