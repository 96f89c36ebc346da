"""Clustering baselines, each against an oracle: scikit-learn on the pooled rows, the definition written out, or a planted truth."""

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from unpooled import FedGEM
from unpooled.baselines import AFCL, FFCM, FederatedKMeans, KFed, LocalEM, PooledClustering
from unpooled.baselines.afcl import Seeds, distinct, interact, moves
from unpooled.baselines.kfed import awasthi_sheffet, max_min
from unpooled.client import Client
from unpooled.errors import BadData, BadParameter
from unpooled.metrics.clustering import score

CENTRES = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])


@pytest.fixture(name="problem")
def problem_():
    rng = np.random.default_rng(0)
    y = {f"c{c:02}": rng.choice(rng.choice(4, 2, replace=False), 40) for c in range(12)}
    return {n: CENTRES[z] + rng.normal(size=(40, 2)) for n, z in y.items()}, y


def pooled(x):
    return np.concatenate([x[n] for n in sorted(x)])


def test_federated_kmeans_is_lloyds_algorithm_on_all_rows(problem):
    x, _ = problem
    start = pooled(x)[:4]
    ours = FederatedKMeans(4, centers_init=start, tol=0.0, max_iter=100).fit(x)
    theirs = KMeans(4, init=start, n_init=1, tol=0.0, algorithm="lloyd").fit(pooled(x))
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-8)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-8)


def test_ffcm_average_is_fuzzy_c_means_on_all_rows(problem):
    x, _ = problem
    rows, centres = pooled(x), CENTRES + 1.0
    ours = FFCM(4, centers_init=centres, fuzziness=1.7, max_iter=5, tol=0.0).fit(x)
    for _ in range(5):  # the definition, membership by membership
        apart = np.linalg.norm(rows[:, None] - centres, axis=-1)
        u = 1 / ((apart[:, :, None] / apart[:, None, :]) ** (2 / 0.7)).sum(-1)
        centres = (u**1.7).T @ rows / (u**1.7).sum(0)[:, None]
    np.testing.assert_allclose(ours.cluster_centers_, centres, rtol=1e-8)


def test_ffcm_cluster_joins_what_fuzzy_c_means_finds_at_each_client():
    """Every client holds all four clusters, so it is plain which of its centres belongs to which."""
    rng = np.random.default_rng(3)
    x = {f"c{c}": np.repeat(CENTRES, 10 + 5 * c, axis=0) + rng.normal(size=(40 + 20 * c, 2)) for c in range(5)}
    ours = FFCM(4, aggregation="cluster", centers_init=CENTRES + 0.5, random_state=0).fit(x)
    total, mass = np.zeros((4, 2)), np.zeros(4)
    for rows in x.values():
        centres = CENTRES + 0.5
        for _ in range(50):
            apart = np.linalg.norm(rows[:, None] - centres, axis=-1)
            u = (1 / ((apart[:, :, None] / apart[:, None, :]) ** 2).sum(-1)) ** 2
            centres = u.T @ rows / u.sum(0)[:, None]
        total, mass = total + centres * u.sum(0)[:, None], mass + u.sum(0)
    expected = total / mass[:, None]
    order = [int(np.argmin(np.linalg.norm(ours.cluster_centers_ - e, axis=1))) for e in expected]
    np.testing.assert_allclose(ours.cluster_centers_[order], expected, rtol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        FederatedKMeans(4, random_state=0),
        FFCM(4, random_state=0),
        FFCM(4, aggregation="cluster", random_state=0),
        KFed(4, n_local=2, random_state=0),
        AFCL(8, rate=0.01, max_iter=30, random_state=0),
        PooledClustering("gmm", n_components=4, random_state=0),
        PooledClustering("gmm-bic", n_components=7, n_init=1, random_state=0),
        PooledClustering("bayesian", n_components=8, random_state=0),
        PooledClustering("hdbscan"),
    ],
    ids=lambda m: f"{type(m).__name__} {getattr(m, 'method', getattr(m, 'aggregation', ''))}",
)
def test_clusters_far_apart_are_found(model, problem):
    x, y = problem
    model.fit(x)
    got = score(y, model.labels_)
    assert got.pooled_ari > 0.9
    assert abs(got.k_error) <= 1


def test_local_em_is_right_alone_and_shares_nothing(problem):
    x, y = problem
    model = LocalEM(random_state=0).fit(x)
    got = score(y, model.labels_)
    assert got.client_ari > 0.95
    assert got.k == model.n_components_ == sum(len(np.unique(v)) for v in y.values())
    with pytest.raises(BadParameter, match="no model for client 'zoe'"):
        model.predict(x["c00"], client="zoe")


def test_local_em_finds_what_scikit_learn_finds_on_each_clients_rows(problem):
    x, y = problem
    model = LocalEM({n: len(np.unique(v)) for n, v in y.items()}, random_state=0).fit(x)
    for name, (params, shape, first) in model.models_.items():
        theirs = GaussianMixture(len(params.weights), covariance_type=shape, tol=1e-8, random_state=0).fit(x[name])
        order, other = np.lexsort(params.means.T), np.lexsort(theirs.means_.T)
        np.testing.assert_allclose(params.means[order], theirs.means_[other], atol=0.01)
        np.testing.assert_allclose(params.weights[order], theirs.weights_[other], atol=0.01)
        back = np.empty(len(other), dtype=int)
        back[other] = first + order
        assert np.array_equal(model.labels_[name], back[theirs.predict(x[name])])


def test_k_fed_is_its_definition_centre_by_centre(problem):
    """Start from the client with most centres, add the farthest point until there are k, one step of Lloyd over all local centres."""
    x, _ = problem
    model = KFed(4, n_local=2, random_state=0).fit(x)
    points = [c for name in sorted(x) for c in model.local_centers_[name]]
    chosen = list(model.local_centers_[min(x)])
    while len(chosen) < 4:
        chosen.append(max(points, key=lambda p: min(np.linalg.norm(p - c) for c in chosen)))
    mine = [min(range(4), key=lambda z: np.linalg.norm(p - chosen[z])) for p in points]
    expected = [np.mean([p for p, z in zip(points, mine) if z == k], axis=0) for k in range(4)]
    np.testing.assert_allclose(model.cluster_centers_, expected, rtol=1e-10)
    for name in x:  # a row is in the cluster of its client's nearest local centre
        near = [min(range(2), key=lambda j: np.linalg.norm(row - model.local_centers_[name][j])) for row in x[name]]
        assert model.labels_[name].tolist() == [mine[2 * sorted(x).index(name) + j] for j in near]


def test_awasthi_sheffet_centres_are_means_of_sure_rows():
    rng = np.random.default_rng(1)
    x = np.repeat([[0.0, 0, 0], [9, 0, 0]], 30, axis=0) + rng.normal(size=(60, 3))
    got = awasthi_sheffet(x, 2, rng)
    got = got[np.argsort(got[:, 0])]
    np.testing.assert_allclose(got, [x[:30].mean(0), x[30:].mean(0)], atol=0.25)


def test_max_min_takes_the_farthest_point_each_time():
    points = np.array([[0.0], [1.0], [10.0], [4.0]])
    assert max_min(points, points[:1], 3).ravel().tolist() == [0.0, 10.0, 4.0]
    assert len(max_min(points, points[:1], 9)) == 4


def test_afcl_gives_the_rows_away():
    """The paper's reason to look for something else: the server computes every row from what it is sent."""
    x, seeds, rate = np.random.default_rng(2).normal(size=(30, 3)), np.eye(3), 0.01
    sent = moves.using(batch=1)(Seeds(seeds, np.asarray(rate)), Client("a", x))
    rebuilt = sent.move / rate + seeds[sent.seed]
    np.testing.assert_allclose(rebuilt[np.lexsort(rebuilt.T)], x[np.lexsort(x.T)], rtol=1e-10)
    few = moves.using(batch=4)(Seeds(seeds, np.asarray(rate)), Client("a", x))
    assert len(few.seed) < 15


def test_afcl_seeds_near_the_winner_move_with_it():
    seeds = np.array([[0.0], [1.0], [50.0]])
    got = interact(seeds, np.array([[3.0]]), np.array([0.1]))  # the winner is 1; 0 is nearer to it than the object is
    np.testing.assert_allclose(got.ravel(), [0.3, 1.2, 50.0])
    assert len(distinct(np.array([[0.0], [0.01], [5.0]]), 0.05)) == 2


def test_afcl_many_objects_in_turn_written_out():
    rng = np.random.default_rng(4)
    objects, rates = rng.normal(size=(50, 2)) * 4, rng.uniform(0.01, 0.3, size=50)
    seeds = [list(s) for s in rng.normal(size=(5, 2)) * 4]
    got = interact(np.array(seeds), objects, rates)
    wins = [1] * 5
    for x, rate in zip(objects, rates):
        winner = min(range(5), key=lambda j: wins[j] * sum((a - b) ** 2 for a, b in zip(x, seeds[j])))
        wins[winner] += 1
        reach, centre = sum((a - b) ** 2 for a, b in zip(x, seeds[winner])), list(seeds[winner])
        for seed in seeds:
            if sum((a - b) ** 2 for a, b in zip(seed, centre)) <= reach:
                seed[:] = [s + rate * (a - s) for s, a in zip(seed, x)]
    np.testing.assert_allclose(got, seeds, rtol=1e-10)


def _least_bic(x):
    shapes, sizes = ("spherical", "diag", "full"), range(1, 8)
    fits = [GaussianMixture(k, covariance_type=s, reg_covar=1e-4, random_state=0).fit(x) for s in shapes for k in sizes]
    return min(fits, key=lambda m: m.bic(x)).predict(x)


def _process(x):
    prior = {"weight_concentration_prior": 1e-2, "reg_covar": 1e-4, "max_iter": 300}
    return BayesianGaussianMixture(n_components=8, random_state=0, **prior).fit_predict(x)


@pytest.mark.parametrize(
    ("model", "theirs"),
    [
        (PooledClustering("gmm-bic", n_components=7, n_init=1, random_state=0), _least_bic),
        (PooledClustering("bayesian", n_components=8, random_state=0), _process),
        (PooledClustering("hdbscan"), lambda x: HDBSCAN(min_cluster_size=20, copy=True).fit_predict(x)),
    ],
    ids=lambda m: getattr(m, "method", ""),
)
def test_the_other_central_references_are_scikit_learns(model, theirs, problem):
    x, _ = problem
    model.fit(x)
    assert np.array_equal(np.concatenate([model.labels_[n] for n in sorted(x)]), theirs(pooled(x)))


def test_the_central_reference_is_scikit_learns(problem):
    x, _ = problem
    ours = PooledClustering("gmm", n_components=4, covariance_types=("full",), random_state=0).fit(x)
    theirs = GaussianMixture(4, n_init=3, reg_covar=1e-4, random_state=0).fit_predict(pooled(x))
    assert np.array_equal(np.concatenate([ours.labels_[n] for n in sorted(x)]), theirs)


@pytest.mark.parametrize(
    "model", [FedGEM(), KFed(2), FFCM(2), FederatedKMeans(2), AFCL(4), LocalEM(), PooledClustering()]
)
def test_a_client_with_missing_values_is_named_before_any_work(model, problem):
    x, _ = problem
    x["c03"][5, 1] = np.nan
    with pytest.raises(BadData, match="client 'c03' has missing values: fill them in first"):
        model.fit(x)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (KFed(0), "n_clusters=0 must be at least 1"),
        (FFCM(3, fuzziness=1.0), "fuzziness=1.0 must be above 1"),
        (FFCM(3, aggregation="mode"), "aggregation='mode' is not known"),
        (PooledClustering("dbscan"), "method='dbscan' is not known"),
    ],
)
def test_wrong_parameters(model, sentence):
    with pytest.raises(BadParameter, match=sentence):
        model.fit({"a": np.eye(3), "b": np.eye(3)})


@pytest.mark.parametrize("estimator", [KFed(2, n_local=2, random_state=0), LocalEM(random_state=0)])
def test_a_client_predicts_frames_with_texts(estimator):
    rng = np.random.default_rng(0)
    frames = {
        name: pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40), "sex": rng.choice(["f", "m"], 40)})
        for name in ("north", "south")
    }
    with pytest.raises(NotFittedError):
        estimator.predict(frames["north"], client="north")
    labels = estimator.fit(frames).predict(frames["north"], client="north")
    assert (labels == estimator.labels_["north"]).all() if hasattr(estimator, "labels_") else len(labels) == 40
