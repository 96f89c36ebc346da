"""Greedy joining against SciPy's Ward linkage, and the labels of a dendrogram."""

import numpy as np
from scipy.cluster.hierarchy import fcluster, ward
from sklearn.metrics import adjusted_rand_score

from unpooled.models.open_mixture.agglomeration import Merges, greedy


def ward_merges(x):
    n, centre = np.ones(len(x)), np.array(x)

    def gains(i, j):
        return -n[i] * n[j] / (n[i] + n[j]) * ((centre[i] - centre[j]) ** 2).sum(1)

    def join(i, j):
        centre[i] = (n[i] * centre[i] + n[j] * centre[j]) / (n[i] + n[j])
        n[i] += n[j]

    return greedy(len(x), gains, join)


def test_every_level_equals_ward():
    x = np.random.default_rng(0).normal(size=(40, 3))
    merges, oracle = ward_merges(x), ward(x)
    for k in (1, 2, 5, 17, 39, 40):
        assert adjusted_rand_score(merges.labels(k), fcluster(oracle, k, "maxclust")) == 1.0


def test_best_is_where_gains_add_up_to_the_most():
    merges = Merges(4, np.array([0, 2, 4]), np.array([1, 3, 5]), np.array([3.0, 1.0, -2.0]))
    assert merges.best() == 2
    assert merges.labels(2).tolist() == [0, 0, 1, 1]
    assert merges.labels(4).tolist() == [0, 1, 2, 3]


def test_one_leaf_has_nothing_to_join():
    merges = greedy(1, lambda i, j: np.zeros(len(i)), lambda i, j: None)
    assert merges.best() == 1
    assert merges.labels(1).tolist() == [0]
