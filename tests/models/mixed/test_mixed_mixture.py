"""MixedMixture: the same fit whatever the split, the plain loops' numbers, a likelihood that never falls, and its relatives' numbers."""

import numpy as np
import pytest
from plain_mixed import em_round
from sklearn.metrics import adjusted_rand_score

import unpooled as up
from unpooled.errors import BadData, BadParameter
from unpooled.maths import gaussian, mixture
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.mixed import em, merging
from unpooled.models.mixed.columns import Columns
from unpooled.models.mixed.levels import shares
from unpooled.models.mixed.messages import Params, Prior
from unpooled.models.mixed.rows import split

KINDS = ["real", "positive", "category", "ordered", "count", "binary", "real"]
LEVELS = [0, 0, 3, 5, 0, 2, 0]


def table(n=300, seed=0, missing=0.15):
    """(rows, components) of three groups that differ in every column."""
    rng = np.random.default_rng(seed)
    z = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    x = np.empty((n, 7))
    x[:, 0] = rng.normal(z * 2.0, 1)
    x[:, 6] = 0.6 * x[:, 0] + rng.normal(size=n) - z
    x[:, 1] = np.exp(rng.normal(z * 0.8, 0.5))
    x[:, 2] = [rng.choice(3, p=p) for p in np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])[z]]
    x[:, 3] = np.clip(np.round(rng.normal(1 + z, 0.8)), 0, 4)
    x[:, 4] = rng.negative_binomial(2, 2 / (2 + np.array([1.0, 4.0, 12.0])[z]))
    x[:, 5] = rng.random(n) < np.array([0.1, 0.5, 0.9])[z]
    x[rng.random(x.shape) < missing] = np.nan
    return x, z


def make(n_components=3, **options):
    return up.MixedMixture(n_components, kinds=KINDS, random_state=0, **options)


def close(a, b, tol):
    one, other = a.params(), b.params()
    for name in ("levels", "mean", "dispersion"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=tol, atol=tol)
    for mine, yours in zip(one.gaussian, other.gaussian):
        np.testing.assert_allclose(mine, yours, rtol=tol, atol=tol)


@pytest.mark.parametrize("shape", [pytest.param("full", marks=pytest.mark.slow), "tied", "diag", "spherical"])
def test_any_split_is_one_client(shape):
    x, _ = table(150)
    whole = make(covariance_type=shape, tol=1e-6).fit(x)
    order = np.argsort(x[:, 2])  # clients that differ: by level, missing ones last
    splits = [np.array_split(order, 4), [order[:3], order[3:]], np.array_split(np.arange(len(x)), 7)]
    for parts in splits[: 3 if shape == "full" else 1]:
        split = make(covariance_type=shape, tol=1e-6).fit({f"c{i}": x[p] for i, p in enumerate(parts)})
        close(whole, split, 1e-10)
        assert split.n_iter_ == whole.n_iter_


@pytest.fixture(scope="module", name="fitted")
def fitted_():
    x, _ = table(200, missing=0.0)
    return make().fit(x), x


@pytest.mark.parametrize("seed", [0, 1])
def test_a_round_is_that_of_the_plain_loops(seed):
    x, _ = table(120, seed)
    columns = Columns(KINDS, LEVELS)
    model = make(max_iter=2, tol=0.0).fit(x)
    params = model.params()
    held = np.array([np.nansum(x[:, j] == code) for j in columns.discrete for code in range(LEVELS[j])], dtype=float)
    overall, mean = shares(held, columns), np.array([np.nanmean(x[:, 4])])
    starts = {j: int(s) for j, s in zip(columns.discrete, columns.starts)} | {"sizes": LEVELS}
    theta = {
        "weights": params.gaussian.weights,
        "means": params.gaussian.means,
        "covs": model.covariances_,
        "levels": params.levels,
        "mean": params.mean,
        "dispersion": params.dispersion,
    }
    prior = Prior(overall, mean)
    for _ in range(3):
        stats = em.e_step(params, split(x, np.ones(len(x)), columns), columns, "full")
        loglik, theta = em_round(x, KINDS, starts, theta, overall, mean, 1.0, 1e-6)
        assert float(stats.gaussian.loglik) == pytest.approx(loglik, rel=1e-10)
        params = em.m_step(params, stats, prior, columns, "full", 1e-6, 1.0)
        np.testing.assert_allclose(params.gaussian.weights, theta["weights"], rtol=1e-8)
        np.testing.assert_allclose(params.gaussian.means, theta["means"], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(unpack_triangle(params.gaussian.covs), theta["covs"], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(params.levels, theta["levels"], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(params.mean, theta["mean"], rtol=1e-8)
        np.testing.assert_array_equal(params.dispersion, theta["dispersion"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accelerate": True},
        {"personal_weights": True},
        {"covariance_type": "diag"},
        {"accelerate": True, "covariance_type": "tied"},
        {"covariance_type": "spherical"},
    ],
)
def test_the_likelihood_never_falls(options):
    x, _ = table(150, seed=3)
    model = make(4, tol=0.0, max_iter=40, **options).fit({"a": x[:50], "b": x[50:]})
    rises = np.diff([row["loglik"] for row in model.history_])
    assert rises.min() > -1e-10
    assert rises.max() > 1e-5


def test_real_columns_alone_are_a_gaussian_mixture():
    x, _ = table(seed=1)
    x = x[:, [0, 6]]
    for shape in ("full", "diag"):
        mine = up.MixedMixture(3, covariance_type=shape, random_state=0, tol=1e-6, max_iter=500).fit(x)
        theirs = up.GaussianMixture(3, covariance_type=shape, random_state=0, tol=1e-6, max_iter=500).fit(x)
        np.testing.assert_allclose(mine.means_, theirs.means_, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(mine.covariances_, theirs.covariances_, rtol=1e-9, atol=1e-9)
        assert mine.bic_ == pytest.approx(theirs.bic_, rel=1e-10)


@pytest.mark.slow
def test_acceleration_ends_no_lower_in_fewer_rounds():
    x, _ = table(400, seed=5, missing=0.3)
    plain = make(tol=1e-8, max_iter=2000).fit(x)
    quick = make(tol=1e-8, max_iter=2000, accelerate=True).fit(x)
    assert quick.converged_
    assert quick.lower_bound_ > plain.lower_bound_ - 1e-5
    assert quick.n_iter_ < 0.8 * plain.n_iter_


@pytest.mark.slow
def test_groups_are_found_and_counted():
    x, z = table(600, seed=7, missing=0.05)
    model = up.MixedMixture("auto", kinds=KINDS, random_state=0).fit({"a": x[::2], "b": x[1::2]})
    assert model.n_components_ == 3
    assert adjusted_rand_score(z, model.predict(x)) > 0.8
    assert model.bic_ == min(model.bics_.values())
    assert model.bic_ == pytest.approx(model.bic(x), rel=1e-3)


@pytest.mark.slow
def test_discrete_columns_alone():
    rng = np.random.default_rng(2)
    z = rng.integers(0, 3, 900)
    probs = rng.dirichlet(np.full(4, 0.3), size=(3, 12))
    x = np.array([[rng.choice(4, p=probs[k, j]) for j in range(12)] for k in z], dtype=float)
    model = up.MixedMixture([2, 3, 4], kinds=["category"] * 12, random_state=0).fit({"a": x[:400], "b": x[400:]})
    assert model.n_components_ == 3
    assert adjusted_rand_score(z, model.predict(x)) > 0.9
    assert model.means_.shape == (3, 0)


@pytest.mark.slow
def test_personal_weights_and_adapt():
    x, z = table(900, seed=9, missing=0.0)
    sites = {"a": x[z < 2], "b": x[z > 0]}
    model = make(personal_weights=True).fit(sites)
    assert set(model.personal_) == {"a", "b"}
    for name in sites:
        assert model.personal_[name].weights_.sum() == pytest.approx(1)
        assert model.personal_[name].score(sites[name]) > model.score(sites[name]) + 0.05
    alone = model.adapt(x[z == 1])
    assert alone.weights_.max() > 0.8
    assert alone.score(x[z == 1]) > model.score(x[z == 1])


@pytest.mark.slow
def test_sample_gives_back_its_mixture():
    x, _ = table(1500, seed=4, missing=0.0)
    model = make().fit(x)
    drawn, y = model.sample(20000, random_state=1)
    assert np.bincount(y) / 20000 == pytest.approx(model.weights_, abs=0.02)
    assert model.score(drawn) == pytest.approx(model.score(x), abs=0.1)
    again = make().fit(drawn)
    order = np.argsort(model.count_means_[:, 0])
    back = np.argsort(again.count_means_[:, 0])
    np.testing.assert_allclose(again.count_means_[back], model.count_means_[order], rtol=0.15)
    np.testing.assert_allclose(again.weights_[back], model.weights_[order], atol=0.03)


@pytest.mark.slow
def test_conditional_moments_are_those_of_draws():
    x, _ = table(1500, seed=6, missing=0.0)
    model = make().fit(x)
    drawn, _ = model.sample(1_500_000, random_state=3)
    near = (drawn[:, 2] == 1) & (drawn[:, 5] == 1) & (drawn[:, 3] == 2) & (np.abs(drawn[:, 0] - 2) < 0.1)
    near &= np.abs(drawn[:, 6]) < 0.3
    row = np.array([[2.0, np.nan, 1.0, 2.0, np.nan, 1.0, 0.0]])
    found = model.conditional(row, [1, 4])
    np.testing.assert_allclose(found.mean[0], drawn[near][:, [1, 4]].mean(0), rtol=0.1)
    np.testing.assert_allclose(found.covariance[0].diagonal(), drawn[near][:, [1, 4]].var(0), rtol=0.35)
    probs = model.conditional(np.array([[2.0, np.nan, np.nan, np.nan, np.nan, np.nan, 0.0]]), [2]).probabilities["2"]
    close_by = (np.abs(drawn[:, 0] - 2) < 0.1) & (np.abs(drawn[:, 6]) < 0.3)
    np.testing.assert_allclose(probs[0], np.bincount(drawn[close_by, 2].astype(int)) / close_by.sum(), atol=0.03)
    filled = model.impute(row)
    np.testing.assert_allclose(filled[0, [1, 4]], found.mean[0])
    np.testing.assert_array_equal(filled[0, [0, 2, 3, 5, 6]], row[0, [0, 2, 3, 5, 6]])


def test_score_samples_is_a_probability_over_levels():
    x, _ = table(400, seed=8, missing=0.0)
    kinds = ["category", "ordered", "binary"]
    model = up.MixedMixture(2, kinds=kinds, levels=[3, 5, 2], random_state=0).fit(x[:, [2, 3, 5]])
    cells = np.array([[a, b, c] for a in range(3) for b in range(5) for c in range(2)], dtype=float)
    assert np.exp(model.score_samples(cells)).sum() == pytest.approx(1)
    counts = up.MixedMixture(2, kinds=["count"], random_state=0).fit(x[:, [4]])
    assert np.exp(counts.score_samples(np.arange(2000.0)[:, None])).sum() == pytest.approx(1, abs=1e-6)


def test_saved_and_loaded(fitted, tmp_path):
    model, x = fitted
    again = up.load(model.save(tmp_path))
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))


@pytest.mark.parametrize(
    ("kinds", "column", "value", "text"),
    [
        ("positive", 0, -1.0, "numbers above 0"),
        ("count", 0, 1.5, "whole numbers"),
        ("binary", 5, 2.0, "0 and 1"),
        ("category", 4, 300.0, "give levels="),
    ],
)
def test_values_of_another_kind_are_refused(kinds, column, value, text):
    x, _ = table(60, missing=0.0)
    x[3, column] = value
    wanted = list(KINDS)
    wanted[column] = kinds
    with pytest.raises(BadData, match=text):
        up.MixedMixture(2, kinds=wanted, random_state=0).fit(x)


def test_bad_parameters_are_refused():
    x, _ = table(60)
    cases = [
        ({"kinds": ["real"]}, "one for each"),
        ({"kinds": ["text"] * 7}, "not known"),
        ({"kinds": {"age": "real"}}, "not there"),
        ({"kinds": ["ignored"] * 7}, "no column to fit"),
        ({"smoothing": -1.0}, "0 or more"),
        ({"n_components": "many"}, "not known"),
        ({"personal_weights": True, "accelerate": True}, "accelerate"),
        ({"kinds": KINDS, "n_components": 61}, "more than n_samples"),
    ]
    for options, text in cases:
        with pytest.raises(BadParameter, match=text):
            up.MixedMixture(**{"random_state": 0, **options}).fit(x)


def test_a_level_that_nobody_knew_counts_as_missing(fitted):
    model, x = fitted
    new, gap = x[:1].copy(), x[:1].copy()
    new[0, 2], gap[0, 2] = 7.0, np.nan
    np.testing.assert_allclose(model.score_samples(new), model.score_samples(gap))


def test_a_table_of_few_rows_has_no_spare_components():
    x, _ = table(20)
    few = make(2).fit({"a": x[:8], "b": x[8:]})
    assert few.n_components_ == 2
    assert np.isfinite(few.score_samples(x)).all()


def test_mergers_of_components_that_hardly_vary_in_some_direction_stay_positive_definite():
    direction = np.array([1.0, 3.0, 7.0, 0.1])  # columns of persons that are all but multiples of each other
    none = np.zeros((3, 0))
    for seed in range(30):
        widths = np.random.default_rng(seed).uniform(0.5, 3, 3)
        covs = np.array([v * np.outer(direction, direction) * 1e12 + 2e-3 * np.eye(4) for v in widths])
        block = mixture.Params(np.full(3, 1 / 3), np.outer([0, 1e6, 5e6], direction), gaussian.pack_covs(covs, "full"))
        for fewer in merging.merged(Params(block, none, none, none), [1, 2], "full", 1e-6).values():
            np.linalg.cholesky(gaussian.unpack_covs(fewer.gaussian.covs, "full"))
