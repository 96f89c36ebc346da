"""Clusters of several Gaussians: those without a mode of their own are parts of the clusters that they overlap with."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.candidates import Candidate
from unpooled.models.open_mixture.client_weights import Proposal, common_shares
from unpooled.models.open_mixture.several_gaussians import as_clusters, cluster_of, have_modes, mistaken_for, n_clusters

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
    assert parts[0, 3] > 0.95  # around the first cluster
    assert 0.3 < parts[0, 2] < 0.8  # between the two


def test_where_every_gaussian_is_a_cluster_nothing_changes():
    params = Params(np.ones(3) / 3, 7.0 * np.eye(3), np.ones(3))
    same = as_clusters(Candidate("spherical-3", "gaussians", "spherical", Proposal(params, np.zeros((0, 3)))))
    np.testing.assert_array_equal(same.proposal.topics, np.eye(3))
    assert same.id == "spherical-3"


# ---- wide clusters around narrow ones ----


def concentric(*variances, d=6, means=None):
    k = len(variances)
    params = Params(np.ones(k) / k, np.zeros((k, d)) if means is None else means, np.array(variances))
    return Candidate("spherical", "shared", "spherical", Proposal(params, params.weights[None]))


def test_a_wide_gaussian_around_a_narrow_one_is_a_cluster_if_its_rows_are_hardly_mistaken():
    assert have_modes(concentric(1.0, 36.0)).tolist() == [True, False]
    assert n_clusters(concentric(1.0, 36.0)) == 2
    assert n_clusters(concentric(1.0, 4.0)) == 1  # tails
    assert n_clusters(concentric(1.0, 36.0, d=1)) == 1  # most of its rows are near the narrow one


def test_tails_of_tails_are_no_cluster():
    assert n_clusters(concentric(1.0, 4.0, 16.0)) == 1


def test_two_wide_gaussians_that_overlap_are_one_cluster_around_the_narrow_one():
    means = np.zeros((3, 6))
    means[1, 0], means[2, 0] = 3.0, -3.0
    both = concentric(1.0, 36.0, 36.0, means=means)
    assert cluster_of(both).tolist() == [0, 1, 1]
    np.testing.assert_allclose(as_clusters(both).proposal.topics, [[1, 0, 0], [0, 0.5, 0.5]])


def test_the_fraction_of_rows_that_are_mistaken_is_that_of_the_normal_distribution():
    apart = concentric(1.0, 1.0, d=1, means=np.array([[0.0], [2.0]]))
    np.testing.assert_allclose(mistaken_for(apart, 0), [norm.cdf(1.0), norm.sf(1.0)], atol=0.03)
