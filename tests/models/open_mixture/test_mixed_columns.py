"""OpenMixture where columns are mixed: clusters and their number, whatever clients hold, and the same whatever the split."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled.errors import BadData, BadParameter

KINDS = ["real", "real", "category", "count", "binary"]
NAMES = ["a", "b", "c", "d"]


def drawn(n, k=3, seed=0):
    """(rows, their clusters): two numbers, a category of three levels, a count and a flag."""
    rng = np.random.default_rng(seed)
    z = rng.integers(k, size=n)
    numbers = 2.5 * np.array([[0, 0], [1, 1], [2, 0]])[z] + rng.normal(size=(n, 2))
    level = np.where(rng.random(n) < 0.8, z, rng.integers(3, size=n))
    flag = rng.random(n) < np.array([0.1, 0.5, 0.9])[z]
    return np.column_stack([numbers, level, rng.poisson(np.array([1, 4, 9])[z]), flag]).astype(float), z


def sites(z, skewed, seed=1):
    rng = np.random.default_rng(seed)
    return (z + rng.integers(2, size=len(z))) % 4 if skewed else rng.integers(4, size=len(z))


def labels(model, by):
    found = np.empty(len(by), int)
    for name, mine in model.labels_.items():
        found[by == int(name)] = mine
    return found


@pytest.mark.slow
@pytest.mark.parametrize("skewed", [False, True])
def test_clusters_and_their_number_are_found(skewed):
    x, z = drawn(300)
    by = sites(z, skewed)
    model = up.OpenMixture(kinds=KINDS, random_state=0).fit(x, by=by)
    assert model.n_components_ == 3
    assert model.structure_ == "mixed"
    assert model.alike_ is not skewed
    assert adjusted_rand_score(z, labels(model, by)) > 0.85
    assert model.certainty_["3"] > 0.5
    assert sum(n.sum() for n in model.holdings_.values()) == pytest.approx(300, abs=20)
    assert_allclose(model.cluster_weights_.sum(), 1.0)


@pytest.mark.slow
def test_common_weights_give_the_same_clusters_whatever_the_split():
    x, z = drawn(150)
    fits = [up.OpenMixture(kinds=KINDS, random_state=0).fit(x, by=sites(z, False, seed)) for seed in (1, 2)]
    assert all(fit.alike_ for fit in fits)
    for name in ("weights_", "means_", "probabilities_", "count_means_"):
        assert_allclose(getattr(fits[0], name), getattr(fits[1], name), rtol=1e-8, err_msg=name)
    assert_allclose(fits[0].bic_, fits[1].bic_, rtol=1e-10)


@pytest.mark.slow
def test_a_frame_with_texts_and_gaps_is_fitted_saved_and_predicted(tmp_path):
    x, z = drawn(200)
    x[np.random.default_rng(4).random(x.shape) < 0.1] = np.nan
    words = np.array(["low", "mid", "high"], dtype=object)
    level = np.array([None if np.isnan(v) else words[int(v)] for v in x[:, 2]], dtype=object)
    frame = pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "level": level, "visits": x[:, 3], "flag": x[:, 4]})
    by = sites(z, True)
    tables = {name: frame[by == i] for i, name in enumerate(NAMES)}
    fed = up.federate(tables, columns={"visits": {"kind": "count"}, "flag": {"kind": "binary"}})
    model = up.OpenMixture(random_state=0).fit(fed)
    assert model.kinds_ == KINDS
    assert adjusted_rand_score(z, model.predict(frame)) > 0.7
    model.save(tmp_path)
    again = up.load(tmp_path)
    assert_allclose(again.predict_proba(frame, client="b"), model.predict_proba(frame, client="b"))
    assert np.isfinite(model.score_samples(frame)).all()
    assert not np.isnan(model.impute(frame)).any()


@pytest.mark.slow
def test_few_rows_of_a_cluster_are_not_told():
    x, z = drawn(120)
    by = np.where(z == 2, 0, sites(z, False))
    by[np.flatnonzero(z == 2)[:3]] = 1  # three rows of the last cluster at another client
    model = up.OpenMixture(kinds=KINDS, min_count=10, random_state=0).fit(x, by=by)
    rare = int(np.argmax(model.means_[:, 0]))
    assert model.holders_[rare] == ["0"]


def test_a_number_with_few_values_does_not_make_clusters_without_variance():
    x, z = drawn(150)
    x = np.column_stack([np.round(x[:, 0] / 4), x[:, 2]])
    model = up.OpenMixture(kinds=["real", "category"], random_state=0).fit(x, by=sites(z, False))
    assert np.linalg.eigvalsh(model.covariances_).min() > 1e-4


@pytest.mark.slow
def test_what_mixed_columns_do_not_take_is_refused():
    x, _ = drawn(60)
    by = np.arange(60) % 3
    with pytest.raises(BadParameter, match="structure='topics' takes numbers"):
        up.OpenMixture("topics", kinds=KINDS).fit(x, by=by)
    with pytest.raises(BadData, match="is of kind 'category'"):
        up.OpenMixture(kinds=["category", *KINDS[1:]]).fit(x, by=by)
    with pytest.raises(BadParameter, match="kinds has 2 entries"):
        up.OpenMixture(kinds=["real", "count"]).fit(x, by=by)
    model = up.OpenMixture(kinds=KINDS, random_state=0).fit(x, by=by)
    with pytest.raises(BadParameter, match="partial_fit takes tables of numbers"):
        model.partial_fit({"new": x})
    numbers = up.OpenMixture(random_state=0).fit(x[:, :2], by=by)
    with pytest.raises(BadParameter, match="as_mixed is for fits of mixed columns"):
        numbers.as_mixed()
