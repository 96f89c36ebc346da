"""Proposals of other optima keep the mean and covariance of the whole, and find the right move where there is one."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture as Pooled

import unpooled as up
from unpooled.layers.private import Private
from unpooled.models.private.cell_mixture import Mixture, proposals
from unpooled.models.private.choice import compare
from unpooled.models.private.frame import Frame


def whole(m):
    mean = m.weights @ m.means
    away = m.means - mean
    return mean, np.einsum("k,kij->ij", m.weights, m.covs) + np.einsum("k,ki,kj->ij", m.weights, away, away)


@pytest.mark.parametrize("k", [3, 4, 7])
def test_the_moments_of_the_whole_stay(k):
    rng = np.random.default_rng(k)
    factors = rng.normal(size=(k, 3, 3))
    now = Mixture(rng.dirichlet(np.ones(k)), rng.normal(size=(k, 3)), factors @ factors.swapaxes(1, 2) + np.eye(3))
    found = proposals(now, 11)
    assert 1 <= len(found) <= 11
    for one in found:
        assert one.weights.sum() == pytest.approx(1)
        assert np.linalg.eigvalsh(one.covs).min() > 0
        for a, b in zip(whole(one), whole(now)):
            np.testing.assert_allclose(a, b, atol=1e-12)


def test_two_components_have_no_such_move():
    assert proposals(Mixture(np.full(2, 0.5), np.zeros((2, 1)), np.ones((2, 1, 1))), 11) == []


def test_a_poor_optimum_is_told_from_the_right_move():
    rng = np.random.default_rng(0)
    centres = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 8.0]])
    x = centres[rng.integers(0, 3, 6000)] + 0.4 * rng.normal(size=(6000, 2))
    poor = Mixture(  # two share the upper cluster, one covers both lower ones
        np.array([1 / 6, 1 / 6, 2 / 3]),
        np.array([[-0.2, 8.0], [0.2, 8.0], [0.0, 0.0]]),
        np.array([0.16 * np.eye(2), 0.16 * np.eye(2), np.diag([4.2, 0.16])]),
    )
    frame = Frame(np.array([[-20.0, 20.0]] * 2), np.zeros(2), np.full(2, 0.05))  # leaves rows as they are
    fed = Private(up.federate({"a": x}), epsilon=1, delta=1e-5, bounds=frame.bounds, secret=b"p" * 32)
    others = proposals(poor, 11)
    scores = compare(fed, frame, [poor, *others], 6000.0, 0.04 * fed.accountant.mu2_total)
    best = others[int(np.argmax(scores.per_row[1:]))]
    assert scores.per_row[1:].max() > scores.per_row[0]
    found = Pooled(3, means_init=best.means).fit(x)
    assert np.abs(np.sort(found.means_[:, 0]) - [-2, 0, 2]).max() < 0.1
