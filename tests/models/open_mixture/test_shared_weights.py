"""Where clients do not differ: atoms are split as far as a message allows, mixtures start from centres."""

import numpy as np
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture.candidates import Candidate
from unpooled.models.open_mixture.client_weights import Proposal
from unpooled.models.open_mixture.constants import SMALL_TABLE
from unpooled.models.open_mixture.initial import Centres
from unpooled.models.open_mixture.shared_weights import (
    are_too_coarse,
    ids_of,
    restart_from_centres,
    should_split,
    split_atoms,
    tied_starts,
    whitened,
)

CENTRES = 7.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0.5]])


def atoms(k, d):
    params = Params(np.ones(k) / k, np.zeros((k, d)), np.zeros((k, d * (d + 1) // 2)))
    return Candidate("atoms", "atoms", "full", Proposal(params, params.weights[None]))


def test_atoms_are_split_while_they_have_rows_and_the_message_is_short():
    assert should_split(atoms(80, 2), 5000)
    assert not should_split(atoms(80, 2), 1000)  # ten rows each
    assert not should_split(atoms(80, 20), 1e6)  # 231 numbers each


def test_atoms_that_could_be_split_but_for_the_message_are_too_coarse():
    assert are_too_coarse(atoms(80, 20), 5000)
    assert not are_too_coarse(atoms(80, 20), 1000)  # ten rows each
    assert not are_too_coarse(atoms(80, 2), 5000)  # they can be split


def test_the_halves_of_an_atom_have_its_mean_and_covariance_together():
    cov, mean = np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([5.0, -1.0])
    params = Params(np.ones(1), mean[None], gaussian.pack_triangle(cov)[None])
    weights, means, covs = split_atoms(
        Candidate("atoms", "atoms", "full", Proposal(params, np.ones((1, 1))))
    ).proposal.params
    np.testing.assert_allclose(weights @ means, mean)
    centred = means - mean
    total = np.tensordot(weights, gaussian.unpack_triangle(covs) + centred[:, :, None] * centred[:, None, :], 1)
    np.testing.assert_allclose(total, cov)


def test_mixtures_start_from_k_means_of_centres_with_the_scatter_about_them():
    rng = np.random.default_rng(0)
    z = np.arange(50) % 5
    x = CENTRES[z] + 0.1 * rng.normal(size=(50, 2))
    centres = Centres(x, np.full(50, 4.0), 200 * np.array([[1.0, 0.3], [0.3, 2.0]]))
    params = Params(np.ones(5) / 5, np.zeros((5, 2)), np.ones((5, 3)))
    c = Candidate("full-5", "shared", "full", Proposal(params, params.weights[None]))
    repeated = Params(*(np.repeat(a, 12, axis=0) for a in params))
    many = c._replace(id="full-60", proposal=Proposal(repeated, np.ones((1, 60))))
    found = restart_from_centres({"full-5": (c, 1.0), "full-60": (many, 2.0)}, centres, x, 3, rng)
    new = found["full-5"][0].proposal.params
    order = np.linalg.norm(new.means[:, None] - CENTRES, axis=-1).argmin(0)
    np.testing.assert_allclose(new.means[order], [x[z == k].mean(0) for k in range(5)])
    for k in range(5):
        between = np.cov(x[z == k].T, bias=True)
        np.testing.assert_allclose(new.covs[order[k]], between[[0, 0, 1], [0, 1, 1]] + [1, 0.3, 2])
    assert (found["full-5"][1], found["full-60"]) == (1.0, (many, 2.0))  # fifty centres do not make sixty clusters


def test_where_rows_are_few_and_in_small_tables_there_are_several_starts_with_one_covariance():
    rng = np.random.default_rng(0)
    centres = Centres(rng.normal(size=(40, 5)), np.full(40, 5.0), np.eye(5))
    params = Params(np.ones(2) / 2, np.zeros((2, 5)), np.ones((2, 15)))
    mixtures = {"full-2": (Candidate("full-2", "shared", "full", Proposal(params, params.weights[None])), 1.0)}
    found = tied_starts(mixtures, centres, 25.0, rng)
    assert list(found) == ids_of("full", 2)[1:]
    assert all(c.is_tied for c, _ in found.values())
    assert len({c.proposal.params.means.tobytes() for c, _ in found.values()}) > 2
    assert not tied_starts(mixtures, centres, 19.0, rng)  # too few rows for two Gaussians
    assert tied_starts(mixtures, centres, SMALL_TABLE, rng)
    assert not tied_starts(mixtures, centres, SMALL_TABLE + 1.0, rng)  # and more than two covariances have numbers


def test_whitened_centres_are_in_units_of_all_rows():
    """Rows about their centre and centres about the mean have the unit covariance together."""
    rng = np.random.default_rng(0)
    centres = Centres(rng.normal(size=(30, 2)) * [1.0, 10.0], rng.uniform(5, 9, 30), np.diag([50.0, 1e3]))
    n, z = centres.n, whitened(centres)
    axes = np.linalg.lstsq(centres.mean - n @ centres.mean / n.sum(), z, rcond=None)[0]
    np.testing.assert_allclose((z.T * n @ z + axes.T @ centres.scatter @ axes) / n.sum(), np.eye(2), atol=1e-3)


def clusters_on_two_rings(k=18, n=700):
    rng = np.random.default_rng(302)
    angle, radius = 4 * np.pi * np.arange(k) / k, np.where(np.arange(k) < k // 2, 2.0, 5.5)
    means = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    y = rng.integers(k, size=n)
    return means[y] + 0.35 * rng.normal(size=(n, 2)), y, rng.integers(10, size=n)


def test_clusters_on_rings_are_found_though_a_few_gaussians_fit_no_better_than_one():
    x, y, by = clusters_on_two_rings()
    model = up.OpenMixture(site_offsets=False, random_state=0).fit(x, by=by)
    assert (model.alike_, model.n_components_) == (True, 18)
    assert adjusted_rand_score(y, model.predict(x)) > 0.95
