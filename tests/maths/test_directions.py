"""Directions in which clients differ: none when rows are dealt at random, K - 1 when clients mix K clusters, the edge as simulated."""

import numpy as np
import pytest

from unpooled.models.open_mixture import directions


def dealt(seed, shares, rows=60, atoms=30):
    """(counts, covariance of one row): rows of clients that mix clusters, each spread softly over atoms of its own."""
    counts, squares = summed(seed, shares, rows, atoms)
    return counts, directions.within(counts, squares)


def summed(seed, shares, rows, atoms):
    """(counts, summed outer products)."""
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
    assert directions.count(*dealt(z, shares)) == z - 1


def test_clients_that_are_alike_differ_in_none_nearly_always():
    found = [directions.count(*dealt(seed, np.full((40, 5), 0.2))) for seed in range(40)]
    assert np.mean(found) <= 0.1


@pytest.mark.parametrize(("components", "groups"), [(12, 4), (8, 8)])
def test_components_are_held_together_or_each_by_holders_of_its_own(components, groups):
    rng = np.random.default_rng(5)
    answers = []
    for seed in range(5):
        shares = rng.dirichlet(np.full(groups, 0.3), 60)
        counts, squares = summed(seed, shares, 80, components)
        answers.append(directions.together(counts, directions.within(counts, squares), squares, rng))
    assert sum(answers) == (5 if components > groups else 0)


def test_rows_of_overlapping_components_are_told_apart():
    overlap = np.array([[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]])
    own = np.array([[30.0, 0.0, 10.0], [5.0, 20.0, 0.0]])
    found = directions._own(own @ overlap, overlap, n_iter=2000)
    np.testing.assert_allclose(found, own, atol=0.05)
    np.testing.assert_allclose(found.sum(1), own.sum(1))


def test_holders_that_change_places_keep_each_components_rows():
    own = np.random.default_rng(0).gamma(1.0, 20.0, (200, 4))
    moved = directions._redrawn(own, np.eye(4), np.zeros((4, 4)), np.random.default_rng(1))
    assert np.array_equal(np.sort(moved, 0), np.sort(own, 0))
    assert not np.array_equal(moved, own)


def test_within_is_the_covariance_about_each_clients_mean():
    rng = np.random.default_rng(0)
    r = rng.dirichlet(np.ones(4), (3, 50))
    away = r - r.mean(1, keepdims=True)
    expected = np.einsum("cni,cnj->ij", away, away) / (150 - 3)
    found = directions.within(r.sum(1), np.einsum("cni,cnj->ij", r, r))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("samples", "size", "free"), [(30, 12, 200), (12, 30, 100), (40, 3, 400)])
def test_noise_stays_below_the_edge_ninety_nine_times_in_a_hundred(samples, size, free):
    rng = np.random.default_rng(1)
    between, inside = rng.normal(size=(1000, samples, size)), rng.normal(size=(1000, free, size))
    within = np.swapaxes(inside, 1, 2) @ inside / free
    largest = np.linalg.eigvals(np.linalg.solve(within, np.swapaxes(between, 1, 2) @ between)).real.max(1)
    assert 0.002 <= (largest > directions.edge(samples, size, free)).mean() <= 0.025


def test_where_rows_are_fewer_than_directions_nothing_stands_out():
    assert directions.edge(9, 30, 20) == np.inf
    assert directions.edge(9, 0, 100) == np.inf


def test_the_share_of_resampled_federations_adds_up():
    shares = np.random.default_rng(4).dirichlet(np.full(4, 0.3), 60)
    found = directions.resampled(*dealt(4, shares), 10, np.random.default_rng(0))
    assert sum(found.values()) == pytest.approx(1.0)
    assert found.get("4", 0.0) >= 0.6


def test_two_clients_are_told_apart_where_they_differ_and_not_by_chance():
    apart = [
        directions.count(*dealt(seed, np.array([[0.8, 0.2], [0.2, 0.8]]), rows=150, atoms=6)) for seed in range(10)
    ]
    alike = [directions.count(*dealt(seed, np.full((2, 2), 0.5), rows=150, atoms=6)) for seed in range(40)]
    assert apart == [1] * 10
    assert alike == [0] * 40


def owned(rows):
    """Counts and covariance where every client has atoms of its own, rows of each, to which its rows belong without a doubt."""
    own = np.kron(np.eye(len(rows)), np.ones(np.shape(rows)[1])) * np.ravel(rows)
    return own, directions.within(own, np.diag(own.sum(0)))


@pytest.mark.parametrize("clients", [2, 3, 10])
def test_clients_with_nothing_in_common_are_as_many_clusters(clients):
    """No row of a client differs from its others in who would hold it, and the differences of clients are all the surer."""
    assert directions.count(*owned(np.full((clients, 3), 20.0))) == clients - 1
    assert directions.count(*owned(20.0 + np.arange(3 * clients).reshape(clients, 3))) == clients - 1
    assert directions.count(*owned(np.full((clients, 1), 20.0))) == clients - 1


def test_two_kinds_of_clients_that_differ_among_themselves_too():
    """Clusters 0 to 2 at some clients, 3 and 4 at others: one direction is certain, three more are not."""
    rng = np.random.default_rng(6)
    shares = np.zeros((80, 5))
    shares[:40, :3], shares[40:, 3:] = rng.dirichlet(np.ones(3), 40), rng.dirichlet(np.ones(2), 40)
    counts = np.stack(
        [np.bincount(rng.choice(5, 60, p=p) + 5 * rng.integers(3, size=60), minlength=15) for p in shares]
    )
    assert directions.count(counts, directions.within(counts, np.diag(counts.sum(0)))) == 4


def test_single_rows_show_no_difference():
    """A client's only row differs from none of its rows, wherever it is; nor does one rare row say anything."""
    rng = np.random.default_rng(7)
    single = np.eye(4)[rng.integers(4, size=30)]
    many = np.concatenate([rng.multinomial(50, [0.3, 0.3, 0.4, 0.0], 30), [[0, 0, 0, 1]]])
    for counts in (single, many):
        assert directions.count(counts, directions.within(counts, np.diag(counts.sum(0)))) == 0


def test_where_a_row_says_nothing_nothing_stands_out():
    """One component, or rows that are all shared alike: there is no direction to look in."""
    assert directions.count(np.full((6, 1), 5.0), np.zeros((1, 1))) == 0
    assert directions.count(np.full((6, 3), 5.0), np.zeros((3, 3))) == 0
    assert directions.count(np.zeros((3, 2)), np.zeros((2, 2))) == 0
    assert directions.count(np.full((1, 3), 5.0), np.eye(3)) == 0
