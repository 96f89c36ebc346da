"""A row that lies apart cannot be found from what a client tells in one fit: all of it is about one partition of its rows."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.errors import DataWarning
from unpooled.maths import gaussian, local_mixture
from unpooled.models.open_mixture.descriptions import Description, describe
from unpooled.models.open_mixture.questions import FACTOR, OFFSET

MIN_COUNT, CLOSE = 5.0, 0.3
PLACES = 10 * np.eye(2, 3)
# one row is at the first, none at the others
CORNERS = PLACES[0] + np.sqrt(3) * (2.0 * np.indices((2, 2, 2)).reshape(3, -1).T - 1)


def client_with_a_row_apart(seed, n=100):
    """A narrow cluster and a wide one; one row is nearer to the narrow one but likelier in the wide one."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    x = PLACES[y] + np.array([0.3, 2.0])[y, None] * rng.normal(size=(n, 3))
    x[0] = CORNERS[0]
    client = Client("a", x)
    client.rng = rng
    return client


def describe_it(client, min_count=MIN_COUNT, max_centres=20):
    return describe.using(max_local=5, max_centres=max_centres, min_count=min_count)(None, client)


def sums_of(told):
    """(n, sum) of every cluster that was told: centres and components."""
    n, mean, _ = told.components()
    return np.concatenate([told.n, n]), np.concatenate([told.n[:, None] * told.centre, n[:, None] * mean])


def points_between(n, sums):
    """Differences per row of all unions of one or two clusters whose numbers of rows differ by less than min_count."""
    pairs = [list(c) for size in (1, 2) for c in combinations(range(len(n)), size)]
    n_of, sum_of = (np.stack([a[pair].sum(0) for pair in pairs]) for a in (n, sums))
    i, j = np.nonzero((n_of[:, None] - n_of > 0.5) & (n_of[:, None] - n_of < MIN_COUNT - 0.5))
    return (sum_of[i] - sum_of[j]) / (n_of[i] - n_of[j])[:, None]


def corners_found(points):
    """Which corners have a point close by, (8,) bool."""
    return (np.linalg.norm(points[:, None] - CORNERS, axis=-1) < CLOSE).any(0)


def two_partitions(client):
    """(n, sum) as they would be of a local mixture and of k-means of the same rows, both without small clusters."""
    x, w = client.x, client.w
    fit = local_mixture.fit(x, w, client.rng, range(1, 6))
    r = local_mixture.responsibilities(fit, x)
    centres = np.eye(6)[local_mixture.kmeans(x, w, 6, client.rng)]
    shares = np.concatenate([without_small(r, x), without_small(centres, x)], axis=1)
    return shares.sum(0), shares.T @ x


def without_small(shares, x):
    n, mean = shares.sum(0), shares.T @ x / shares.sum(0)[:, None]
    large = n >= MIN_COUNT
    nearest = ((mean[:, None] - mean[large]) ** 2).sum(-1).argmin(1)
    return shares @ np.eye(large.sum())[nearest]


def test_differences_show_a_row_no_more_often_than_places_without_one():
    found = np.mean(
        [corners_found(points_between(*sums_of(describe_it(client_with_a_row_apart(s))))) for s in range(60)], 0
    )
    assert found[0] <= found[1:].max() + 0.05


def test_differences_of_two_partitions_would_show_it():
    """The attack of the test above finds the row where there is something to find."""
    found = np.mean([corners_found(points_between(*two_partitions(client_with_a_row_apart(s)))) for s in range(60)], 0)
    assert found[0] > found[1:].max() + 0.2


@pytest.mark.parametrize("n", [5, 18, 24, 40, 90])
def test_centres_divide_all_rows_and_none_is_small(n):
    for seed in range(5):
        client = client_with_a_row_apart(seed, n)
        told = describe_it(client)
        assert told.n.min() >= MIN_COUNT
        assert told.n.sum() == n
        assert_allclose(told.n @ told.centre, client.x.sum(0), atol=1e-9)
        assert set(told.component) == set(range(len(told.scatter)))
        total = gaussian.unpack_triangle(told.components()[2]).sum(0)
        _, mean, between = local_mixture.summarise(told.components()[1], told.components()[0][:, None])
        assert_allclose(total + between[0], (client.x - mean).T @ (client.x - mean), atol=1e-6)


def test_a_client_of_few_rows_tells_nothing():
    told = describe_it(client_with_a_row_apart(0, 4))
    assert (len(told.n), len(told.scatter)) == (0, 0)
    heavy = Client("a", np.eye(4, 3), w=np.full(4, 10.0))
    assert len(describe_it(heavy).n) == 0  # weights are not rows


def test_the_partition_is_the_same_in_every_fit_and_with_fewer_centres():
    first, again = (client_with_a_row_apart(3, 60) for _ in range(2))
    again.rng = np.random.default_rng(99)
    told, told_again, coarse = describe_it(first), describe_it(again), describe_it(again, max_centres=0)
    assert_allclose(told.centre, told_again.centre)
    for ours, theirs in zip(told.components(), coarse.components()):
        assert_allclose(ours, theirs, atol=1e-9)


def test_rows_without_offset_and_scale_are_divided_alike():
    """A server knows mean and spread of both descriptions, so that it knows offset and scale: other clusters would show rows."""
    client = client_with_a_row_apart(4, 60)
    before = describe_it(client)
    client.state = {OFFSET: np.array([1.0, 2.0, 3.0]), FACTOR: np.array([0.2, 1.0, 30.0])}
    after = describe_it(client)
    assert_allclose(after.n, before.n)
    assert_allclose(after.centre, before.centre * client.state[FACTOR] - client.state[OFFSET])


@pytest.mark.slow
def test_all_that_is_gathered_in_a_fit_is_about_one_partition(monkeypatch):
    rng, told = np.random.default_rng(5), []
    places = 8.0 * rng.normal(size=(4, 3))
    data = {f"c{c}": places[rng.integers(4, size=60)] + rng.normal(size=(60, 3)) + rng.normal(size=3) for c in range(8)}
    fed = federate(data)
    gather = fed.gather
    monkeypatch.setattr(fed, "gather", lambda *args: told.append(gather(*args)) or told[-1])
    with pytest.warns(DataWarning, match="sites differ as instruments do"):
        up.OpenMixture(random_state=0).fit(fed)
    first, *again = [answers for answers in told if isinstance(answers["c0"], Description)]
    assert len(again) == 2  # without offsets, and without those that were estimated again
    for name in data:
        for second in again:
            assert_allclose(first[name].n, second[name].n)
            moves = first[name].centre - second[name].centre
            assert_allclose(moves, np.broadcast_to(moves[0], moves.shape), atol=1e-9)
