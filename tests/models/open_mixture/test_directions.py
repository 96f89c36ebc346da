"""Directions in which clients differ: none when rows are assigned at random, K - 1 when clients mix K clusters."""

import numpy as np
import pytest

from unpooled.models.open_mixture import directions
from unpooled.models.open_mixture.grouping import Held


def mixed_clients(seed, shares, rows=60, atoms=30):
    """(counts, covariance of one row): clients mix clusters, and each cluster is spread over atoms of its own."""
    counts, squares = summed(seed, shares, rows, atoms)
    return with_covariance(counts, squares)


def with_covariance(counts, products):
    sums = directions.sums_of(counts)
    return sums, directions.within_covariance(sums, products)


def summed(seed, shares, rows, atoms):
    """(counts, sum of outer products of responsibilities)."""
    rng = np.random.default_rng(seed)
    z = shares.shape[1]
    counts, squares = np.zeros((len(shares), atoms)), np.zeros((atoms, atoms))
    for c, share in enumerate(shares):
        label = rng.choice(z, rows, p=share)
        atom = label + z * rng.integers(atoms // z, size=rows)
        r = 0.8 * np.eye(atoms)[atom] + 0.2 * rng.dirichlet(np.ones(atoms), rows)
        counts[c], squares = r.sum(0), squares + r.T @ r
    return counts, squares


@pytest.mark.parametrize("z", [2, 3, 5, 10])
def test_clients_that_mix_clusters_differ_in_one_direction_less(z):
    shares = np.random.default_rng(z).dirichlet(np.full(z, 0.5), 80)
    assert directions.count_directions(*mixed_clients(z, shares)) == z - 1


def test_identical_clients_rarely_differ_in_any_direction():
    found = [directions.count_directions(*mixed_clients(seed, np.full((40, 5), 0.2))) for seed in range(40)]
    assert np.mean(found) <= 0.1


@pytest.mark.parametrize(("components", "groups"), [(12, 4), (8, 8)])
def test_components_share_holders_or_have_their_own(components, groups):
    rng = np.random.default_rng(5)
    answers = []
    for seed in range(5):
        shares = rng.dirichlet(np.full(groups, 0.3), 60)
        counts, squares = summed(seed, shares, 80, components)
        within = with_covariance(counts, squares)[1]
        answers.append(directions.components_share_holders(counts, within, squares, rng))
    assert sum(answers) == (5 if components > groups else 0)


def test_counts_before_overlap_are_recovered():
    overlap = np.array([[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]])
    own = np.array([[30.0, 0.0, 10.0], [5.0, 20.0, 0.0]])
    found = directions._counts_before_overlap(own @ overlap, overlap, n_iter=2000)
    np.testing.assert_allclose(found, own, atol=0.05)
    np.testing.assert_allclose(found.sum(1), own.sum(1))


def test_permuting_holders_keeps_each_components_rows():
    own = np.random.default_rng(0).gamma(1.0, 20.0, (200, 4))
    moved = directions._permuted_counts(own, np.eye(4), np.zeros((4, 4)), np.random.default_rng(1))
    assert np.array_equal(np.sort(moved, 0), np.sort(own, 0))
    assert not np.array_equal(moved, own)


def test_within_is_the_covariance_about_each_clients_mean():
    rng = np.random.default_rng(0)
    r = rng.dirichlet(np.ones(4), (3, 50))
    away = r - r.mean(1, keepdims=True)
    expected = np.einsum("cni,cnj->ij", away, away) / (150 - 3)
    found = with_covariance(r.sum(1), np.einsum("cni,cnj->ij", r, r))[1]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("samples", "size", "free"), [(30, 12, 200), (12, 30, 100), (40, 3, 400)])
def test_noise_exceeds_the_level_in_about_one_percent_of_cases(samples, size, free):
    rng = np.random.default_rng(1)
    between, inside = rng.normal(size=(1000, samples, size)), rng.normal(size=(1000, free, size))
    within = np.swapaxes(inside, 1, 2) @ inside / free
    largest = np.linalg.eigvals(np.linalg.solve(within, np.swapaxes(between, 1, 2) @ between)).real.max(1)
    assert 0.002 <= (largest > directions.largest_noise_eigenvalue(samples, size, free)).mean() <= 0.025


def test_with_fewer_rows_than_dimensions_nothing_is_significant():
    assert directions.largest_noise_eigenvalue(9, 30, 20) == np.inf
    assert directions.largest_noise_eigenvalue(9, 0, 100) == np.inf


def test_fractions_of_resampled_federations_sum_to_one():
    shares = np.random.default_rng(4).dirichlet(np.full(4, 0.3), 60)
    counts, squares = summed(4, shares, 60, 30)
    within = with_covariance(counts, squares)[1]
    found = directions.resampled_sizes(counts, within, 10, np.random.default_rng(0))
    assert sum(found.values()) == pytest.approx(1.0)
    assert found.get("4", 0.0) >= 0.6


def test_two_clients_differ_only_if_they_do():
    apart = [
        directions.count_directions(*mixed_clients(seed, np.array([[0.8, 0.2], [0.2, 0.8]]), rows=150, atoms=6))
        for seed in range(10)
    ]
    alike = [
        directions.count_directions(*mixed_clients(seed, np.full((2, 2), 0.5), rows=150, atoms=6)) for seed in range(40)
    ]
    assert apart == [1] * 10
    assert alike == [0] * 40


def owned(rows):
    """Counts and covariance where every client has atoms of its own and responsibilities are 0 or 1; rows is (clients, atoms of each)."""
    own = np.kron(np.eye(len(rows)), np.ones(np.shape(rows)[1])) * np.ravel(rows)
    return with_covariance(own, np.diag(own.sum(0)))


@pytest.mark.parametrize("clients", [2, 3, 10])
def test_clients_with_nothing_in_common_are_clusters_of_their_own(clients):
    """Within a client the direction has no variance, so that a normal approximation does not apply."""
    assert directions.count_directions(*owned(np.full((clients, 3), 20.0))) == clients - 1
    assert directions.count_directions(*owned(20.0 + np.arange(3 * clients).reshape(clients, 3))) == clients - 1
    assert directions.count_directions(*owned(np.full((clients, 1), 20.0))) == clients - 1


def test_separated_and_ordinary_directions_add_up():
    """Clusters 0 to 2 at some clients, 3 and 4 at others: one direction has no variance within clients, three have some."""
    rng = np.random.default_rng(6)
    shares = np.zeros((80, 5))
    shares[:40, :3], shares[40:, 3:] = rng.dirichlet(np.ones(3), 40), rng.dirichlet(np.ones(2), 40)
    counts = np.stack(
        [np.bincount(rng.choice(5, 60, p=p) + 5 * rng.integers(3, size=60), minlength=15) for p in shares]
    )
    assert directions.count_directions(*with_covariance(counts, np.diag(counts.sum(0)))) == 4


def test_single_rows_show_no_difference():
    """A client with one row has no variance within, and a single rare row is no evidence."""
    rng = np.random.default_rng(7)
    single = np.eye(4)[rng.integers(4, size=30)]
    many = np.concatenate([rng.multinomial(50, [0.3, 0.3, 0.4, 0.0], 30), [[0, 0, 0, 1]]])
    for counts in (single, many):
        assert directions.count_directions(*with_covariance(counts, np.diag(counts.sum(0)))) == 0


def test_without_variance_there_is_no_direction():
    """One component, or responsibilities that are all equal."""
    none = [(np.full((6, 1), 5.0), 0), (np.full((6, 3), 5.0), 0), (np.zeros((3, 2)), 0), (np.full((1, 3), 5.0), 1)]
    for counts, variance in none:
        within = variance * np.eye(counts.shape[1])
        assert directions.count_directions(directions.sums_of(counts), within) == 0


def test_gaussians_of_fewer_rows_than_columns_count_as_one():
    """Three Gaussians of four rows, each at one client: they follow the rows that they started from."""
    counts = np.array([[30.0, 10, 4, 0, 0], [10, 30, 0, 4, 0], [20, 20, 0, 0, 4]])
    products = np.diag(counts.sum(0))
    held = Held(directions.sums_of(counts), products, n_columns=5)
    groups = held.determined()
    pooled = counts @ groups
    np.testing.assert_array_equal(pooled, [[30, 10, 4], [10, 30, 4], [20, 20, 4]])
    np.testing.assert_allclose(held.sums.grouped(groups).squares, directions.sums_of(pooled).squares)
    np.testing.assert_array_equal(held._replace(n_columns=4).determined(), np.eye(5))
    np.testing.assert_array_equal(held._replace(n_columns=1000).determined(), np.eye(5))  # all would be one
