"""A real SuperLink with TLS and node keys, three nodes with three kinds of tables: the fit is the one in process, whatever breaks."""

import numpy as np
import pytest

import unpooled as up
from unpooled.flower import connect
from unpooled.local import federate

pytestmark = pytest.mark.network


def mixture(**how):
    return up.GaussianMixture(n_components=3, random_state=0, max_iter=8, tol=0, **how)


def assert_same(a, b, rtol=1e-12):
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=1e-12)


def test_the_fit_over_three_nodes_is_the_fit_in_process(network):
    here = mixture().fit(federate(network.tables))
    with connect(network.link, min_clients=3, wait=60) as fed:
        there = mixture().fit(fed)
        assert fed.names == ["basel", "geneva", "zurich"]
        assert fed.journal.refusals == []
    assert_same(here, there)
    assert list(there.feature_names_in_) == ["age", "chol", "thalach"]
