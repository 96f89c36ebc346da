"""Scores of clusters on both tasks, against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from unpooled.errors import BadData
from unpooled.metrics.clustering import centre_error, label_centres, score, silhouette


def test_clients_that_swap_names_are_right_alone_and_wrong_together():
    truth = {"a": np.array([0, 0, 1, 1]), "b": np.array([0, 0, 1, 1])}
    found = {"a": np.array([0, 0, 1, 1]), "b": np.array([1, 1, 0, 0])}
    got = score(truth, found)
    assert got.client_ari == 1.0
    assert got.pooled_ari == pytest.approx(adjusted_rand_score([0, 0, 1, 1] * 2, [0, 0, 1, 1, 1, 1, 0, 0]))
    assert got.pooled_ari < 0.01
    assert (got.k, got.k_error) == (2, 0)


def test_clients_weigh_by_rows():
    truth = {"a": np.array([0, 1] * 10), "b": np.array([0, 1])}
    found = {"a": np.array([0, 1] * 10), "b": np.array([0, 0])}
    assert score(truth, found).client_ari == pytest.approx((20 * 1.0 + 2 * 0.0) / 22)


def test_different_clients_are_refused():
    with pytest.raises(BadData, match="same clients"):
        score({"a": [0]}, {"b": [0]})


def test_matched_centres():
    got = centre_error(np.array([[0.0, 0.0], [5.0, 0.0], [9.0, 9.0]]), np.array([[5.0, 1.0], [0.0, 2.0]]))
    assert got.matched == pytest.approx(1.5)
    assert (got.missed, got.extra) == (1, 0)


def test_centres_of_labels_are_means_of_their_rows():
    x, labels = np.random.default_rng(1).normal(size=(30, 3)), np.repeat([7, -1, 4], 10)
    np.testing.assert_allclose(label_centres(x, labels), [x[labels == z].mean(0) for z in (-1, 4, 7)], rtol=1e-12)


def test_nmi_of_both_tasks_is_scikit_learns():
    rng = np.random.default_rng(2)
    truth, found = ({n: rng.integers(3, size=40) for n in "ab"} for _ in range(2))
    got = score(truth, found)
    nmi = normalized_mutual_info_score
    assert got.pooled_nmi == pytest.approx(nmi(np.r_[truth["a"], truth["b"]], np.r_[found["a"], found["b"]]))
    assert got.client_nmi == pytest.approx(np.mean([nmi(truth[n], found[n]) for n in "ab"]))


def test_silhouette_of_one_cluster_is_zero():
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert silhouette(x, np.zeros(20, dtype=int)) == 0.0
    assert silhouette(np.r_[x, x + 50], np.repeat([0, 1], 20)) > 0.9
