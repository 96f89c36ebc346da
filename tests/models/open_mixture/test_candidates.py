"""Candidates of OpenMixture: ranked by BIC with a penalty per Gaussian, merged pair by pair, covariances repaired and shrunk."""

import numpy as np

from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.candidates import Candidate, best, best_of_each_size, by_size, lowest_cost
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.covariances import repair, shrink
from unpooled.models.open_mixture.initial import initial_sizes, merge_pairs

CENTRES = 7.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0.5]])


def candidate(k, bic):
    params = Params(np.ones(k) / k, np.zeros((k, 2)), np.ones(k))
    return Candidate(f"spherical-{k}", "gaussians", "spherical", Proposal(params, np.zeros((0, k))), bic=bic)


def test_one_gaussian_more_needs_strong_evidence():
    assert best((candidate(4, 100.0), candidate(5, 92.0)), "gaussians").size == 4
    assert best((candidate(4, 100.0), candidate(5, 88.0)), "gaussians").size == 5


def test_the_candidates_with_the_lowest_cost_come_first():
    kept = lowest_cost([candidate(2, 9.0), candidate(3, 1e3), candidate(4, 5.0), candidate(5, 0.0)], 2)
    assert [c.size for c in kept] == [2, 4]  # 9 + 2 * 10, 5 + 4 * 10, 0 + 5 * 10


def test_the_best_candidates_of_every_size_are_kept():
    found = best_of_each_size([candidate(2, 9.0), candidate(3, 1.0), candidate(2, 5.0), candidate(2, 7.0)], 2)
    assert sorted((c.size, c.bic) for c in found) == [(2, 5.0), (2, 7.0), (3, 1.0)]


def test_where_rows_are_few_the_lowest_bic_of_a_size_ranks_it_and_the_smallest_volume_is_its_optimum():
    def full(id, k, bic, spread):
        params = Params(np.ones(k) / k, np.zeros((k, 3)), np.tile(spread * np.array([1.0, 0, 1, 0, 0, 1]), (k, 1)))
        return Candidate(id, "shared", "full", Proposal(params, params.weights[None]), bic=bic)

    two, three, compact = full("full-2", 2, 10.0, 1.0), full("full-3", 3, 8.0, 2.0), full("full-3-tied0", 3, 12.0, 1.0)
    few = by_size([two, three, compact], rows=10.0)
    assert [[c.id for c in group] for group in few] == [["full-3-tied0", "full-3"], ["full-2"]]
    many = by_size([two, three, compact], rows=1000.0)
    assert [[c.id for c in group] for group in many] == [["full-3"], ["full-2"], ["full-3-tied0"]]

    gains_nothing = by_size([two, three, compact], rows=10.0, fewest=11.0)
    assert [c.id for c in gains_nothing[0]] == ["full-3"]
    assert [c.id for c in by_size([two, three, compact], 10.0, fewest=23.0)[0]] == ["full-3"]  # gains 11 of 15
    assert [c.id for c in by_size([two, three, compact], 10.0, 23.0, 0.0)[0]] == ["full-3-tied0", "full-3"]


def test_pairs_are_merged_one_after_the_other():
    params = Params(np.ones(5) / 5, CENTRES, np.ones(5))
    start = Candidate("spherical-5", "gaussians", "spherical", Proposal(params, np.zeros((0, 5))))
    found = merge_pairs(start, 500.0, 3)
    expected = [("spherical-5-1", 4), ("spherical-5-1-1", 3), ("spherical-5-1-1-1", 2)]
    assert [(c.id, c.size) for c in found] == expected
    assert [c.size for c in merge_pairs(found[-1], 500.0, 3)] == [1]


def test_initial_sizes_go_down_to_one():
    assert initial_sizes(3) == [5, 3, 2, 1]
    assert initial_sizes(40)[:4] == [42, 40, 30, 22]


def test_covariances_that_are_not_positive_are_repaired_and_others_kept():
    good, bad = np.array([2.0, 0.5, 1.0]), np.array([1.0, 2.0, 1.0])  # packed: xx, xy, yy
    repaired = repair(np.stack([good, bad]), "full", 0.01)
    assert np.array_equal(repaired[0], good)
    np.testing.assert_allclose(np.linalg.eigvalsh(repaired[1][[[0, 1], [1, 2]]]), [0.01, 3.0])
    assert np.array_equal(repair(np.array([-1.0, 2.0]), "spherical", 0.01), [0.01, 2.0])


def test_covariances_are_averaged_with_the_pooled_one_by_rows():
    n, covs, means = np.array([2.0, 1e9]), np.array([9.0, 1.0]), np.zeros((2, 3))
    np.testing.assert_allclose(shrink(covs, n, means, "spherical", 2.0, own_scale=False), [5.0, 1.0], rtol=1e-5)


def test_atoms_keep_their_own_scale_when_they_are_shrunk():
    pooled = np.array([2.0, 0.5, 1.0])
    covs, n, means = np.stack([4 * pooled, pooled / 4]), np.array([5.0, 5.0]), np.zeros((2, 2))
    np.testing.assert_allclose(shrink(covs, n, means, "full", 4.0, own_scale=True), covs, rtol=1e-4)
    drawn = shrink(covs, n, means, "full", 4.0, own_scale=False)
    assert np.all(drawn[0] < covs[0])
    assert np.all(drawn[1] > covs[1])
