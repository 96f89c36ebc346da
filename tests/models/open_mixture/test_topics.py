"""Topics from counts: the likelihood rises, and planted topics come back."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from unpooled.models.open_mixture import topics
from unpooled.models.open_mixture.directions import sums_of


def planted(seed, clients=60, z=5, atoms=30, rows=150, held=3):
    rng = np.random.default_rng(seed)
    label = np.arange(atoms) % z
    beta = rng.dirichlet(np.ones(atoms // z), z)
    full = np.zeros((z, atoms))
    for k in range(z):
        full[k, label == k] = beta[k]
    shares = np.zeros((clients, z))
    for c in range(clients):
        which = rng.choice(z, held, replace=False)
        shares[c, which] = rng.dirichlet(np.ones(held) * 2)
    counts = np.stack([rng.multinomial(rows, s @ full) for s in shares]).astype(float)
    return counts, label


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_planted_topics_come_back(seed):
    counts, label = planted(seed)
    found = topics.fit(counts, topics.initial_topics(counts, topics.agglomerate(sums_of(counts)).labels(5)))
    assert adjusted_rand_score(label, (found.atoms * counts.sum(0)).argmax(0)) > 0.9
    np.testing.assert_allclose(found.atoms.sum(1), 1.0)
    np.testing.assert_allclose(found.shares.sum(1), 1.0)


def test_likelihood_rises_every_step():
    counts, _ = planted(3)
    state = topics.initial_topics(counts, np.arange(30) % 4)
    logliks = []
    for _ in range(20):
        state = topics.fit(counts, state, n_iter=1)
        logliks.append(state.loglik)
    assert np.all(np.diff(logliks) >= -1e-9)
    assert logliks[-1] > logliks[0]


def test_merging_loses_least_information_first():
    # atoms 0 and 1 have the same profile: merging loses nothing
    counts = np.array([[10.0, 5.0, 0.0, 1.0], [20.0, 10.0, 3.0, 0.0]])
    merges = topics.agglomerate(sums_of(counts))
    assert {merges.left[0], merges.right[0]} == {0, 1}
    assert merges.gain[0] == pytest.approx(0.0, abs=1e-12)
    assert np.all(merges.gain[1:] < 0)
