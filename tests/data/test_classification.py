"""Generators return the truth they drew from; the Bayes rule is the best there is; splits and shifts do what they say."""

import numpy as np
import pytest
from scipy.stats import laplace, norm

from unpooled.datasets import classification
from unpooled.errors import BadParameter


def test_paper_and_public_generators_have_their_moments():
    paper = classification.paper(clients=40, rows=500, d=6, random_state=0)
    public = classification.public(clients=40, rows=500, d=6, random_state=0)
    for task, variance in ((paper, 1.0), (public, 6**-0.5)):
        parts = task.components["client-00"]
        np.testing.assert_allclose(parts.second**2, variance)
        x = np.concatenate([x for x, _ in task.train.values()])
        weights = np.mean(list(task.weights.values()), axis=0)
        np.testing.assert_allclose(x.mean(0), weights @ parts.first, atol=0.06)


def test_sizes_of_the_public_generator():
    sizes = [
        len(y) + len(b) + len(c)
        for (_, y), (_, b), (_, c) in zip(
            *(list(p.values()) for p in _parts(classification.public(clients=50, random_state=0)))
        )
    ]
    assert min(sizes) >= 100
    assert max(sizes) <= 1000
    assert len(set(sizes)) > 10


def _parts(task):
    return task.train, task.valid, task.test


def test_densities_are_those_of_scipy():
    for family, one in (("gaussian", norm), ("laplace", laplace)):
        parts = classification.paper(2, 10, d=3, family=family, random_state=0).components["client-0"]
        x = np.random.default_rng(0).normal(size=(5, 3))
        np.testing.assert_allclose(parts.log_density(x)[:, 1], one.logpdf(x - parts.first[1]).sum(-1))


@pytest.mark.parametrize(
    "options", [{}, {"family": "laplace"}, {"family": "beta"}, {"odd_family": "beta"}, {"tied": False}]
)
def test_nobody_beats_the_bayes_rule(options):
    task = classification.paper(6, 900, d=5, random_state=0, **options)
    best = task.bayes_accuracy(task.test)
    assert best > 0.6
    for shift in range(1, 3):  # the rule of a client whose weights are another's
        names = list(task.test)
        other = task._replace(weights=dict(zip(names, [task.weights[names[(i + shift) % 6]] for i in range(6)])))
        assert other.bayes_accuracy(task.test) <= best + 0.005


def test_odd_clients_have_components_of_their_own():
    task = classification.paper(9, 30, d=4, odd_family="beta", random_state=0)
    assert [task.components[n].family for n in task.train] == ["gaussian"] * 6 + ["beta"] * 3
    with pytest.raises(BadParameter, match="family='cauchy' is not known"):
        classification.paper(2, 10, family="cauchy")


def test_splits_keep_every_row_once():
    rows = {"a": (np.arange(20.0)[:, None], np.arange(20)), "b": (np.arange(2.0)[:, None], np.arange(2))}
    parts = classification.split(rows, random_state=0)
    for name, (_, y) in rows.items():
        assert sorted(np.concatenate([p[name][1] for p in parts])) == list(y)
    assert [len(p["a"][1]) for p in parts] == [12, 4, 4]
    with pytest.raises(BadParameter, match="add up to 1"):
        classification.split(rows, (0.5, 0.2, 0.2))
