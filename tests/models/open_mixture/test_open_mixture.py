"""OpenMixture: the number of clusters is found for Gaussians, for groups of Gaussians, and when clients come later."""

import copy
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled import store
from unpooled.data.federate import federate
from unpooled.errors import BadData, BadParameter
from unpooled.metrics.clustering import score
from unpooled.models.open_mixture import grouping, phases

CENTRES = 7.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0.5]])


def gaussian_clients(seed=0, clients=16, rows=60, centres=CENTRES):
    rng = np.random.default_rng(seed)
    x, y = {}, {}
    for c in range(clients):
        held = rng.choice(len(centres), rng.integers(2, 4), replace=False)
        y[f"c{c:02}"] = rng.choice(held, rows)
        x[f"c{c:02}"] = centres[y[f"c{c:02}"]] + rng.normal(size=(rows, 2))
    return x, y


def banded_clients(seed=0, clients=40, rows=120):
    """Four clusters, each of three distant Gaussians that the same clients hold."""
    rng = np.random.default_rng(seed)
    spots = 6.0 * rng.permutation([(i, j) for i in range(4) for j in range(3)]).reshape(4, 3, 2)
    x, y = {}, {}
    for c in range(clients):
        z = rng.choice(rng.choice(4, 2, replace=False), rows)
        x[f"c{c:02}"] = spots[z, rng.integers(3, size=rows)] + rng.normal(size=(rows, 2))
        y[f"c{c:02}"] = z
    return x, y


@cache
def fit_of(clients, structure="auto"):
    """A fit that several tests read, and its data."""
    x, y = gaussian_clients(clients=clients)
    return up.OpenMixture(structure, random_state=0).fit(x), x, y


@pytest.fixture(name="fitted")
def fitted_():
    return fit_of(16)


def test_gaussians_are_found_with_their_number(fitted):
    model, _, y = fitted
    assert (model.structure_, model.n_components_) == ("gaussians", 5)
    assert score(y, model.labels_).pooled_ari > 0.97
    assert max(model.certainty_, key=model.certainty_.get) == "5"
    assert sum(model.certainty_.values()) == pytest.approx(1.0)


@pytest.mark.slow
def test_auto_gives_the_same_gaussians_as_structure_gaussians(fitted):
    model, _, _ = fitted
    alone, _, _ = fit_of(16, "gaussians")
    assert set(model.scores_) == {"gaussians", "topics"}  # both ran, on held-out rows
    for name in ("weights_", "means_", "covariances_", "bic_", "cluster_weights_"):
        np.testing.assert_allclose(getattr(model, name), getattr(alone, name), rtol=0, atol=1e-8)
    for name, shares in alone.client_shares_.items():
        np.testing.assert_allclose(model.client_shares_[name], shares, rtol=0, atol=1e-8)
        assert np.array_equal(model.labels_[name], alone.labels_[name])


@pytest.mark.slow
def test_groups_of_gaussians_that_the_same_clients_hold_are_found():
    x, y = banded_clients()
    model = up.OpenMixture(random_state=0).fit(x)
    assert (model.structure_, model.n_components_) == ("topics", 4)
    assert score(y, model.labels_).pooled_ari > 0.9
    assert model.scores_["topics"] > model.scores_["gaussians"]
    assert model.merges_.leaves == len(model.means_)


@pytest.mark.slow
def test_clients_differ_if_gaussians_show_it_and_atoms_do_not(monkeypatch):
    """Small differences in weights are not significant among atoms of few rows each, in ten columns."""
    rng = np.random.default_rng(100)
    centres, x = 5.0 * np.eye(3, 10), {}
    for c in range(40):
        y = rng.choice(3, 30, p=rng.dirichlet(np.full(3, 10.0)))
        x[f"c{c:02}"] = centres[y] + rng.normal(size=(30, 10))
    found = []
    monkeypatch.setattr(phases, "holder_sums", lambda *args: found.extend(grouping.holder_sums(*args)) or found)
    model = up.OpenMixture(random_state=0).fit(x)
    assert found[0].n_clusters == 1 < found[1].n_clusters
    assert (model.alike_, model.structure_, model.n_components_) == (False, "gaussians", 3)


@pytest.mark.parametrize("clients", [2, 3, 5])
def test_topics_of_few_clients_with_nothing_in_common(clients):
    rng = np.random.default_rng(101)
    x = {f"c{c}": 40.0 * rng.normal(size=8) + rng.normal(size=(100, 8)) for c in range(clients)}
    model = up.OpenMixture("topics", random_state=0).fit(x)
    assert model.n_components_ == clients
    assert score({n: np.full(100, c) for c, n in enumerate(x)}, model.labels_).pooled_ari == 1.0


def paired_clients(seed=0, clients=40, rows=60, d=6):
    """Four clusters of two spherical Gaussians each."""
    rng = np.random.default_rng(seed)
    spots = 3.0 * rng.normal(size=(4, 2, d))
    y = {f"c{c:02}": rng.choice(rng.choice(4, 2, replace=False), rows) for c in range(clients)}
    return {n: spots[z, rng.integers(2, size=rows)] + rng.normal(size=(rows, d)) for n, z in y.items()}, y


@pytest.mark.slow
def test_gaussians_that_the_same_clients_hold_are_one_cluster():
    x, y = paired_clients()
    model = up.OpenMixture(random_state=0).fit(x)
    assert (model.structure_, model.n_components_) == ("topics", 4)
    assert score(y, model.labels_).pooled_ari > 0.97
    assert len(model.means_) <= 10  # Gaussians were grouped, not atoms
    assert max(model.certainty_, key=model.certainty_.get) == "4"
    assert model.merges_.leaves == len(model.means_)


def test_compressed_sums_still_give_covariances():
    x, y = paired_clients(clients=12, rows=40)
    model = up.OpenMixture("topics", random_state=0).fit(up.Compressed(federate(x)))
    assert score(y, model.labels_).pooled_ari > 0.5


@pytest.mark.slow
def test_compressed_gaussians_with_few_rows_for_their_dimensions():
    x, y = paired_clients(clients=12, rows=40, d=12)
    model = up.OpenMixture("gaussians", random_state=0).fit(up.Compressed(federate(x)))
    assert np.isfinite(model.covariances_).all()
    assert score(y, model.labels_).pooled_ari > 0.3


def assigned_at_random(clients, rows):
    """Nine clusters on a grid; each client has fewer than min_count rows of most of them."""
    rng = np.random.default_rng(0)
    y = np.arange(clients * rows) % 9
    x = 8.0 * np.stack(np.divmod(y, 3), 1) + rng.normal(size=(len(y), 2))
    owner = rng.permutation(len(y)) % clients
    return x, owner, {str(c): y[owner == c] for c in range(clients)}


@cache
def fit_of_the_alike():
    x, owner, y = assigned_at_random(12, 30)
    return up.OpenMixture(random_state=0).fit(x, by=owner), x, owner, y


@pytest.mark.slow
def test_clients_that_do_not_differ_get_the_mixture_of_the_pool():
    model, x, owner, y = fit_of_the_alike()
    assert (model.structure_, model.alike_, model.n_components_) == ("gaussians", True, 9)
    assert score(y, model.labels_).pooled_ari > 0.97
    assert max(model.certainty_, key=model.certainty_.get) == "9"
    np.testing.assert_allclose(model.weights_, 1 / 9, atol=0.02)
    np.testing.assert_allclose(model.cluster_weights_, model.weights_)
    assert model.merges_.leaves == 9
    assert all(np.array_equal(model.predict(x[owner == int(n)]), z) for n, z in model.labels_.items())


@pytest.mark.slow
def test_the_longest_fit_takes_at_most_seventy_exchanges():
    x, owner, _ = assigned_at_random(15, 80)
    fed = federate(x, by=owner)
    model = up.OpenMixture(covariance_types="diag", random_state=0).fit(fed)
    assert model.alike_
    assert 2 * len(model.history_) == up.OpenMixture().max_iter  # atoms were split twice, and sites have no offsets
    assert len(fed.journal.exchanges) <= 70


def test_rows_are_counted_even_if_nothing_of_them_was_described():
    assert fit_of_the_alike()[0].rows_ == 360


def cored_clients(clients=15, rows=900):
    """Four clusters assigned to clients at random, each of two Gaussians with one mean: a dense core and long tails."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=rows)
    size = np.where(rng.random(rows) < 0.4, 0.15, 1.0)
    x = 12.0 * np.stack(np.divmod(y, 2), 1) + size[:, None] * rng.normal(size=(rows, 2))
    owner = rng.permutation(rows) % clients
    return x, owner, {str(c): y[owner == c] for c in range(clients)}


@pytest.mark.slow
def test_a_core_and_its_tails_are_one_cluster():
    x, owner, y = cored_clients()
    model = up.OpenMixture(random_state=0).fit(x, by=owner)
    assert model.alike_
    assert (model.n_components_, len(model.means_)) == (4, 8)
    assert score(y, model.labels_).pooled_ari > 0.99
    assert max(model.certainty_, key=model.certainty_.get) == "4"
    np.testing.assert_allclose(model.cluster_weights_ @ model.topics_, model.weights_)
    np.testing.assert_allclose(sum(model.holdings_.values()).sum(), len(x))
    model.partial_fit({"late": x[:50]})
    assert model.n_components_ == 4
    assert np.array_equal(model.labels_["late"], model.predict(x[:50]))


def test_a_new_client_where_clients_do_not_differ():
    model, x, _, _ = copy.deepcopy(fit_of_the_alike())
    means = model.means_.copy()
    strange = np.concatenate([x[:20], np.random.default_rng(9).normal([-15, 30], 1, size=(40, 2))])
    model.partial_fit({"late": strange})
    assert model.n_components_ == 10
    assert np.array_equal(model.means_[:9], means)
    assert (model.labels_["late"][20:] == 9).mean() > 0.95


def test_holders_are_the_clients_with_rows_in_the_cluster(fitted):
    model, _, y = fitted
    nearest = np.linalg.norm(model.centers_[:, None] - CENTRES, axis=-1).argmin(1)  # cluster -> true one
    for z, names in enumerate(model.holders_):
        truly = {n for n in y if (y[n] == nearest[z]).sum() >= 8}
        assert truly <= set(names)
        assert set(names) <= {n for n in y if (y[n] == nearest[z]).any()}


def test_probabilities_and_labels_agree(fitted):
    model, x, _ = fitted
    proba = model.predict_proba(x["c03"], client="c03")
    np.testing.assert_allclose(proba.sum(1), 1.0)
    assert np.array_equal(proba.argmax(1), model.labels_["c03"])
    assert model.score_samples(x["c03"], client="c03").mean() > model.score_samples(x["c03"]).mean()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_on_stacked_and_single_clients():
    x, _ = gaussian_clients(clients=5)
    model, again = (up.OpenMixture("gaussians", covariance_types="diag", random_state=0).fit(x) for _ in range(2))
    assert np.array_equal(model.means_, again.means_)
    single = clone(model).fit(federate(x, mode="one by one"))
    np.testing.assert_allclose(single.means_, model.means_, rtol=1e-8)


class SavedEveryRound(up.OpenMixture):
    """The state goes through a checkpoint before every round."""

    def step(self, fed, state):
        return super().step(fed, store.loads(store.dumps(state)))


@pytest.mark.slow
@pytest.mark.parametrize("alike", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_state_from_a_checkpoint_gives_the_same_bits_in_every_phase(alike):
    if alike:
        model, x, owner, _ = fit_of_the_alike()
        data = {str(c): x[owner == c] for c in range(12)}
    else:
        model, data, _ = fit_of(8)
    saved = SavedEveryRound(random_state=0).fit(data)
    phases_seen = list(dict.fromkeys(row["phase"] for row in saved.history_))
    assert phases_seen == (["search", "split", "shared", "refit"] if alike else ["search", "compare"])
    assert np.array_equal(model.means_, saved.means_)
    assert model.certainty_ == saved.certainty_


def test_saved_and_loaded(fitted, tmp_path):
    model, x, _ = fitted
    loaded = up.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict(x["c01"], client="c01"), model.labels_["c01"])
    assert loaded.holders_ == model.holders_


def test_a_new_client_joins_known_clusters_or_opens_new_ones(fitted):
    model = copy.deepcopy(fitted[0])
    means, labels = model.means_.copy(), {n: v.copy() for n, v in model.labels_.items()}
    rng = np.random.default_rng(9)
    familiar = CENTRES[[0] * 30 + [2] * 30] + rng.normal(size=(60, 2))
    model.partial_fit({"old sorts": familiar})
    assert model.n_components_ == 5
    strange = np.concatenate([familiar[:30], rng.normal([-15, 20], 1, size=(40, 2))])
    model.partial_fit({"a new sort": strange})
    assert model.n_components_ == 6
    assert np.array_equal(model.means_[:5], means)
    assert all(np.array_equal(model.labels_[n], labels[n]) for n in labels)
    assert (model.labels_["a new sort"][30:] == 5).mean() > 0.95
    assert model.holders_[5] == ["a new sort"]


def test_a_new_client_sends_no_small_count(fitted):
    model = copy.deepcopy(fitted[0])
    rows = np.concatenate([model.means_[0] + 0.1 * np.random.default_rng(9).normal(size=(20, 2)), model.means_[1:2]])
    model.partial_fit({"late": rows})
    assert model.holdings_["late"][0] == pytest.approx(
        21
    )  # the total of 21 is known: 20 would show a single row elsewhere
    assert np.count_nonzero(model.holdings_["late"]) == 1
    assert "late" not in model.holders_[1]


def test_a_new_client_must_have_the_same_columns(fitted):
    with pytest.raises(ValueError, match="3 features, but OpenMixture is expecting 2"):
        fitted[0].partial_fit({"wide": np.zeros((10, 3)) + np.arange(10)[:, None]})
    with pytest.raises(NotFittedError):
        up.OpenMixture().partial_fit({"a": np.eye(9)})


@pytest.mark.parametrize("structure", ["auto", "gaussians", "topics"])
def test_one_client_alone(structure):
    x, _ = gaussian_clients(clients=1, rows=150)
    model = up.OpenMixture(structure, random_state=0).fit(x)
    assert 1 <= model.n_components_ <= 5


@pytest.mark.slow
def test_disjoint_clients_keep_their_clusters_apart():
    rng = np.random.default_rng(3)
    x = {f"c{c}": 30.0 * c + rng.normal(size=(40, 2)) for c in range(6)}
    model = up.OpenMixture(random_state=0).fit(x)
    assert model.n_components_ == 6
    assert [len(names) for names in model.holders_] == [1] * 6


@pytest.mark.filterwarnings("ignore:column 1 has the same value")
@pytest.mark.parametrize("structure", ["auto", "gaussians"])
def test_duplicated_rows_and_constant_columns(structure):
    x, _ = gaussian_clients(clients=8, rows=30)
    data = {n: np.repeat(np.c_[v[:, 0], np.ones(30)], 2, axis=0) for n, v in x.items()}
    model = up.OpenMixture(structure, random_state=0).fit(data)
    assert np.isfinite(model.means_).all()
    assert len(model.labels_["c00"]) == 60


def test_clients_with_too_few_rows_say_what_to_do():
    with pytest.raises(ValueError, match="lower min_count"):
        up.OpenMixture(random_state=0).fit({"a": np.diag([1.0, 2.0]), "b": np.eye(2)})


@pytest.mark.filterwarnings("ignore:columns 0, 1 have the same value")
@pytest.mark.parametrize("structure", ["auto", "gaussians", "topics"])
@pytest.mark.parametrize("data", [{"a": np.full((20, 2), 0.1), "b": np.full((9, 2), 0.1)}, {"a": np.ones((1, 2))}])
def test_rows_that_are_all_the_same_are_refused(structure, data):
    with pytest.raises(BadData, match="all rows are the same"):
        up.OpenMixture(structure, random_state=0).fit(data)


def test_a_column_without_values_is_refused_by_name():
    x, _ = gaussian_clients(clients=3)
    x["c01"][:, 0] = np.nan
    with pytest.raises(BadData, match="client 'c01' has no value in column 0"):
        up.OpenMixture(random_state=0).fit(x)


@pytest.mark.slow
@pytest.mark.parametrize("structure", [pytest.param("gaussians", marks=pytest.mark.slow), "auto"])
def test_missing_values_are_integrated_out(structure):
    whole, x, y = fit_of(8, structure)
    rng = np.random.default_rng(0)
    gaps = {name: np.where(rng.random(rows.shape) < 0.1, np.nan, rows) for name, rows in x.items()}
    model = up.OpenMixture(structure, random_state=0).fit(gaps)
    assert model.n_components_ == whole.n_components_
    truth = np.concatenate([y[name] for name in x])
    found = np.concatenate([model.predict(gaps[name]) for name in x])
    complete = np.concatenate([whole.predict(x[name]) for name in x])
    assert adjusted_rand_score(truth, found) > adjusted_rand_score(truth, complete) - 0.2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"structure": "blobs"}, "structure='blobs' is not known"),
        ({"covariance_types": "tied"}, "covariance_types='tied' is not known"),
        ({"min_count": -1}, "min_count=-1 must be at least 0"),
        ({"max_local": 0}, "max_local=0 must be at least 1"),
        ({"structure": "topics", "max_iter": 12}, "max_iter=12 ends before atoms become topics"),
    ],
)
def test_wrong_parameters(wrong, sentence):
    with pytest.raises(BadParameter, match=sentence):
        up.OpenMixture(**wrong).fit(np.zeros((9, 2)) + np.arange(9)[:, None])


@pytest.mark.parametrize(
    "rounds",
    [
        1,
        pytest.param(13, marks=pytest.mark.slow),
        pytest.param(17, marks=pytest.mark.slow),
        pytest.param(20, marks=pytest.mark.slow),
    ],
)
def test_a_fit_that_ends_early_gives_its_best_candidate(rounds):
    x, y = gaussian_clients(clients=8)
    model = up.OpenMixture(max_iter=rounds, random_state=0).fit(x)
    assert model.structure_ == "gaussians"
    assert score(y, model.labels_).pooled_ari > 0.8
    x, owner, _ = assigned_at_random(12, 30)
    assert up.OpenMixture(max_iter=rounds, random_state=0).fit(x, by=owner).n_components_ >= 1


def test_unknown_client_is_named(fitted):
    with pytest.raises(BadParameter, match="no weights are known for client 'c99'"):
        fitted[0].predict(np.zeros((1, 2)), client="c99")
