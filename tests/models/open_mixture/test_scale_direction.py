"""Scales of sites along one direction say that clients hold different clusters; those of instruments differ from column to column."""

import numpy as np
import pytest

import unpooled as up
from unpooled.models.open_mixture.constants import MAX_SCALE_COLUMNS
from unpooled.models.open_mixture.scale_direction import _columns, scales_show_clusters

RNG = np.random.default_rng(0)
INSTRUMENTS = 0.2 * RNG.normal(size=(10, 20))
PATTERN = 0.2 * np.outer(RNG.normal(size=10), RNG.uniform(0.5, 1.5, 20)) + 0.05 * RNG.normal(size=(10, 20))


def shows_clusters(log_scales, mode="stacked"):
    """Of clients that have these logarithms of scales (clients, columns)."""
    fed = up.federate({f"c{i}": RNG.normal(size=(6, log_scales.shape[1])) for i in range(len(log_scales))}, mode=mode)
    for client, own in zip(fed.here(), log_scales):
        client.state["align-r"] = (None, (np.zeros(len(own)), own))
    return scales_show_clusters(fed, "r")


@pytest.mark.parametrize("mode", ["stacked", "one by one"])
def test_scales_along_one_direction_are_told_from_those_of_instruments(mode):
    assert not shows_clusters(INSTRUMENTS, mode)
    assert shows_clusters(PATTERN, mode)


def test_what_all_clients_have_in_common_is_no_direction():
    """A mixture that is too narrow makes every client's scale larger."""
    assert not shows_clusters(INSTRUMENTS + 0.5)


def test_of_a_single_client_with_a_scale_nothing_is_said():
    one = np.where(np.arange(10)[:, None] == 3, INSTRUMENTS, 0.0)
    assert not shows_clusters(one)


def test_of_two_columns_or_two_clients_nothing_is_said():
    assert not shows_clusters(PATTERN[:, :2])
    assert not shows_clusters(PATTERN[:2])


def test_a_client_that_was_absent_counts_for_nothing():
    fed = up.federate({f"c{i}": RNG.normal(size=(6, 20)) for i in range(11)}, mode="one by one")
    for client, own in zip(fed.here(), PATTERN):
        client.state["align-r"] = (None, (np.zeros(20), own))
    assert scales_show_clusters(fed, "r")


def test_columns_are_spread_evenly_where_there_are_many():
    assert _columns(3).tolist() == [0, 1, 2]
    many = _columns(1000)
    assert len(many) == MAX_SCALE_COLUMNS
    assert many[0] == 0
    assert many[-1] == 999
