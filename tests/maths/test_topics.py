"""Topics from counts: the likelihood rises, planted topics come back, identical clients have one."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from unpooled.models.open_mixture import topics


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
def test_planted_topics_come_back_with_their_number(seed):
    counts, label = planted(seed)
    grouping = topics.group(counts)
    found = topics.choose(counts, grouping, range(1, 12))
    best = min(found, key=lambda k: found[k].bic)
    assert best == 5
    assert adjusted_rand_score(label, (found[5].atoms * counts.sum(0)).argmax(0)) > 0.9


def test_likelihood_rises_every_step():
    counts, _ = planted(3)
    state = topics.start(counts, np.arange(30) % 4)
    logliks = []
    for _ in range(20):
        state = topics.fit(counts, state, n_iter=1)
        logliks.append(state.loglik)
    assert np.all(np.diff(logliks) >= -1e-9)
    assert logliks[-1] > logliks[0]


def test_identical_clients_have_one_topic():
    rng = np.random.default_rng(4)
    counts = rng.multinomial(200, rng.dirichlet(np.ones(20)), size=50).astype(float)
    found = topics.choose(counts, topics.group(counts), range(1, 8))
    assert min(found, key=lambda k: found[k].bic) == 1


def test_joining_loses_least_information_first():
    counts = np.array(
        [[10.0, 5.0, 0.0, 1.0], [20.0, 10.0, 3.0, 0.0]]
    )  # atoms 0 and 1 have the same profile: joining is free
    merges = topics.group(counts)
    assert {merges.left[0], merges.right[0]} == {0, 1}
    assert merges.gain[0] == pytest.approx(0.0, abs=1e-12)
    assert np.all(merges.gain[1:] < 0)
