"""Label shares of a client: exact where only the shares differ, and used where networks are chosen."""

import numpy as np
import pytest

from unpooled import baselines
from unpooled.data.federate import federate
from unpooled.learners import Trainer, label_shift
from unpooled.learners.corrections import log_softmax
from unpooled.learners.own_nets import sound
from unpooled.learners.rows import Rows


def test_shares_of_all_add_over_clients():
    y = np.array([0, 0, 1, 2, 2, 2])
    x = np.arange(6.0)[:, None]
    fed = federate({"a": (x[:2], y[:2]), "b": (x[2:], y[2:])})
    counts = np.array([2, 1, 3]) + label_shift.PSEUDO_ROWS
    assert np.allclose(label_shift.label_shares(fed, [0, 1, 2]), counts / counts.sum())


def test_shifted_probabilities_are_those_of_bayes():
    rng = np.random.default_rng(0)
    density = rng.random((50, 3))  # p(x | y) of rows
    every, own = np.array([0.2, 0.3, 0.5]), np.array([0.7, 0.2, 0.1])
    log_base = np.log(density * every / (density @ every)[:, None])[None]
    ratio = np.log(own / every)
    found = np.exp(log_softmax(label_shift.shifted(log_base, {label_shift.KEY: ratio})[0]))
    assert np.allclose(found, density * own / (density @ own)[:, None])
    assert len(label_shift.shifted(log_base, {})) == 0


def test_ratio_of_stacked_clients_leaves_padding_out():
    y, w = np.array([[0, 1, 1, 0], [2, 2, 0, 0]]), np.array([[1, 1, 1, 0], [1, 1, 0, 0]], dtype=float)
    every = np.array([0.5, 0.25, 0.25])
    found = label_shift.log_ratio(Rows(np.zeros((2, 4, 1)), y, w), every)
    one = label_shift.log_ratio(Rows(np.zeros((3, 1)), y[0, :3], w[0, :3]), every)
    assert np.allclose(found[0], one)
    assert found[1].argmax() == 2
    assert found[1, 1] < 0
    assert np.allclose((np.exp(found) * every).sum(-1), 1)


def test_clients_that_differ_in_label_shares_gain(skewed):
    train, test = skewed
    options = {"learner": "mlp", "hidden": (8,), "lr": 0.1, "max_iter": 15, "random_state": 0, "batch_size": 32}
    chosen = baselines.FedAvg(**options).fit(train)
    shared = baselines.FedAvg(**options, personalize="none").fit(train)
    with_own, without = (
        np.mean([(model.predict(x, client=name) == y).mean() for name, (x, y) in test.items()])
        for model in (chosen, shared)
    )
    assert with_own > without + 0.1
    assert all("kept_shift" in own for own in chosen.clients_.values())


def test_a_refitted_network_that_went_astray_is_not_kept():
    learner = Trainer("mlp", 2, [0, 1], (4,))
    rng = np.random.default_rng(0)
    nets = learner.start(rng, 3)
    x, y = rng.normal(size=(20, 2)), rng.integers(0, 2, 20)
    losses = -np.array([learner.log_proba(nets, x)[i, y, np.arange(20)].sum() for i in range(3)])
    worse, better = nets[losses.argmax()], nets[losses.argmin()]
    astray = np.full_like(worse, np.nan)
    kept = sound(learner, np.stack([worse, better, worse]), np.stack([better, worse, astray]), x, y, np.ones(20))
    assert np.array_equal(kept, np.stack([better, better, worse]))


@pytest.fixture
def skewed():
    """Two classes that overlap, nine to one at one client and one to nine at the other: (train, test)."""
    rng = np.random.default_rng(0)
    parts = []
    for rows in (150, 600):
        made = {}
        for name, share in (("a", 0.9), ("b", 0.1)):
            y = (rng.random(rows) < share).astype(int)
            made[name] = (rng.normal(size=(rows, 2)) + y[:, None], y)
        parts.append(made)
    return parts
