"""FedMissEM: the same over clients as pooled, the truth from enough visits, totals with an honest width."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.models.fedmissem import bilinear, families
from unpooled.models.fedmissem.bilinear import Penalties
from unpooled.models.fedmissem.estimator import AFTER, visits
from unpooled.models.fedmissem.questions import fold_of
from unpooled.models.fedmissem.smoothing import smooth
from unpooled.models.fedmissem.table_size import find_size

RNG = np.random.default_rng(0)
J, L = 40, 20
QUICK = {"n_folds": 2, "choose_iter": 16, "max_iter": 90}
THETA = (
    2.0
    + RNG.normal(scale=0.7, size=(J, 1))
    + 0.5 * np.sin(np.arange(L) / 5)
    + np.outer(RNG.normal(size=J), 0.3 * RNG.normal(size=L))
)
TABLES = {
    "poisson": RNG.poisson(np.exp(THETA)).astype(float),
    "gaussian": THETA + 0.3 * RNG.normal(size=(J, L)),
    "binomial": RNG.binomial(8, 1 / (1 + np.exp(2 - THETA))).astype(float),
    "geometric": RNG.spawn(1)[0].poisson(np.exp(THETA) * RNG.spawn(1)[0].gamma(4.0, 0.25, size=(J, L))).astype(float),
}
SEEN = RNG.random((J, L)) < 0.5
BY = RNG.integers(4, size=int(SEEN.sum()))


def seen(family):
    return visits(np.where(SEEN, TABLES[family], np.nan))


def fit(family, **options):
    trials = 8 if family == "binomial" else 1
    options = {"n_sites": J, "n_dates": L, "trials": trials} | QUICK | options
    return up.FedMissEM(options.pop("rank", 1), family, **options).fit(seen(family), by=BY)


@cache
def pooled_fit(family):
    """Clients whose answers add are merged, unless they are asked one by one."""
    return fit(family)


@pytest.mark.parametrize("family", TABLES)
def test_over_clients_it_is_the_pooled_one(family):
    pooled = pooled_fit(family)
    options = {"n_sites": J, "n_dates": L, "trials": pooled.trials} | QUICK
    model = up.FedMissEM(1, family, **options).fit(up.federate(seen(family), by=BY, mode="one by one"))
    assert_allclose(model.table(), pooled.table(), rtol=1e-8)
    assert_allclose(model.totals_std_, pooled.totals_std_, rtol=1e-8)


@pytest.mark.parametrize("family", TABLES)
def test_cells_that_nobody_saw_are_near_their_means(family):
    model, table = pooled_fit(family), TABLES[family]
    mean = np.nanmean(np.where(SEEN, table, np.nan), axis=0)
    error, base = (
        np.sqrt(np.mean((m - table)[~SEEN] ** 2)) for m in (model.table(), np.broadcast_to(mean, table.shape))
    )
    assert error < (0.75 if family in ("poisson", "gaussian") else 0.9) * base  # the others are noisy in themselves


@pytest.mark.parametrize("family", TABLES)
def test_the_loss_falls(family):
    dev = [row["deviance"] for row in fit(family, max_iter=30, penalty=1.0).history_]
    assert dev[-1] < 0.8 * dev[0]
    assert np.mean(np.diff(dev[4:]) <= 1e-3 * dev[4]) > 0.9


@pytest.mark.parametrize(("family", "truth"), [("gaussian", 0.09), ("geometric", 0.25)])
def test_the_dispersion_is_that_of_the_noise_however_few_the_visits_of_a_site(family, truth):
    rng = np.random.default_rng(3)
    mean = 5.0 + 0.4 * rng.normal(size=(300, 1)) + 0.2 * rng.normal(size=8)
    noise = {"gaussian": mean + 0.3 * rng.normal(size=mean.shape)}
    noise["geometric"] = rng.poisson(np.exp(mean) * rng.gamma(4.0, 0.25, size=mean.shape)).astype(float)
    table = np.where(rng.random(mean.shape) < 0.4, noise[family], np.nan)
    model = up.FedMissEM(0, family, n_sites=300, n_dates=8).fit(visits(table))
    assert_allclose(model.dispersion_, truth, rtol=0.15)


def test_the_rank_is_chosen_by_visits_held_back():
    model = fit("gaussian", rank=None, n_folds=5, choose_iter=40, max_iter=150)
    assert model.rank_ == 1
    assert model.n_iter_ <= 3 * (model.choose_iter + 1) + AFTER
    assert model.held_losses_[1:].min() < 0.8 * model.held_losses_[0]


def test_a_rank_that_is_not_there_is_not_chosen():
    rng = np.random.default_rng(4)
    flat = 2.0 + rng.normal(scale=0.7, size=(J, 1)) + 0.5 * np.sin(np.arange(L) / 5)
    table = np.where(rng.random((J, L)) < 0.5, flat + 0.3 * rng.normal(size=(J, L)), np.nan)
    assert up.FedMissEM(None, "gaussian", n_sites=J, n_dates=L, **QUICK).fit(visits(table)).rank_ == 0


def test_a_client_whose_visits_are_all_held_back_at_once_still_counts():
    """Its answer for that fold is a sum of no rows, which must not make the whole answer invalid."""
    rows = np.column_stack([np.repeat(np.arange(8), 4), np.tile(np.arange(4), 8), np.arange(32.0)])
    few = rows[fold_of(rows, 2) == 0][:1]
    fed = up.federate({"one visit": few, "others": rows[1:]}, mode="one by one")
    model = up.FedMissEM(0, "poisson", n_folds=2, choose_iter=2, max_iter=6).fit(fed)
    assert all(row["clients"] == 2 for row in model.history_)


def test_curves_of_sites_are_found():
    rng = np.random.default_rng(7)
    slopes = rng.normal(size=(40, 1)) * np.linspace(-1, 1, 10)
    table = rng.poisson(np.exp(2.5 + slopes)).astype(float)
    seen_cells = rng.random(table.shape) < 0.7
    model = up.FedMissEM(None, "poisson", **QUICK).fit(visits(np.where(seen_cells, table, np.nan)))
    effects = up.FedMissEM(0, "poisson", **QUICK).fit(visits(np.where(seen_cells, table, np.nan)))
    error, without = (np.sqrt(np.mean((m.table() - table)[~seen_cells] ** 2)) for m in (model, effects))
    assert error < 0.6 * without


def test_predictions_are_the_average_of_the_models():
    model = fit("poisson", rank=0)
    cells = np.argwhere(np.ones((J, L)))
    each = [m.factors.left @ m.factors.right.T for m in model.models_]
    assert len(each) > 1
    assert_allclose(model.weights_.sum(), 1.0)
    assert_allclose(model.table(), np.exp(np.tensordot(model.weights_, each, 1)))  # on the scale of the link
    assert_allclose(model.predict(cells), model.table().ravel())
    assert_allclose(model.sites_, model.models_[0].factors.left)


def test_totals_cover_the_truth():
    model = pooled_fit("poisson")
    truth = TABLES["poisson"].sum(axis=0)
    inside = np.abs(model.totals_ - truth) <= 1.645 * model.totals_std_
    assert inside.mean() > 0.7
    everything = up.FedMissEM(1, "poisson", max_iter=20).fit(visits(TABLES["poisson"]))
    assert_allclose(everything.totals_, truth, rtol=1e-9)  # nothing is left to guess


def test_a_site_that_nobody_visited_gets_the_mean_site():
    model = up.FedMissEM(1, "poisson", n_sites=J + 1, n_dates=L, max_iter=120).fit(seen("poisson"), by=BY)
    assert_allclose(model.sites_[J, 0], 0.0, atol=1e-3)
    assert_allclose(model.sites_[:, 0].mean(), 0.0, atol=1e-12)


def test_newton_finds_the_regression_of_each_site():
    """With one date effect known and no penalty to speak of, a Gaussian site's level is the mean of its residuals."""
    factors = bilinear.begin(3, 4, 0, 1.0, np.random.default_rng(0))
    x = np.array([[0, 0, 2.0], [0, 1, 4.0], [1, 2, 0.5]])
    found = bilinear.half(factors, "left", x, np.ones(3), "gaussian", 1)
    new, _ = bilinear.newton(factors, "left", found, 1.0, Penalties(1e-12, 1e-12, 1e-12))
    assert_allclose(new.left[:2, 0], [2.0, -0.5])


def test_a_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    fit("poisson", max_iter=10).plot().figure.savefig(tmp_path / "totals.png")
    assert (tmp_path / "totals.png").stat().st_size > 5000


def test_a_smooth_curve_leaves_a_line_alone():
    t = np.array([0.0, 1.0, 2.5, 3.0, 7.0, 8.0])
    assert_allclose(smooth(t, 3 + 2 * t, 0.6), 3 + 2 * t)


def test_it_is_saved_and_loaded(tmp_path):
    model = fit("poisson", max_iter=6)
    assert (up.load(model.save(tmp_path / "m")).table() == model.table()).all()


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([[0, 0, -1.0], [1, 1, 2.0]], {"family": "poisson"}, "1 of 2 rows of client .* are not visits"),
        ([[0, 0, 0.5], [1, 1, 2.0]], {"family": "geometric"}, "1 of 2 rows of client .* the value a count"),
        ([[0, 0, 1.0], [1, 1, 2.0]], {"n_folds": 1}, "n_folds=1"),
        ([[0, 0.5, 1.0], [1, 1, 2.0]], {}, "sites and dates whole numbers"),
        ([[0, 0, 3.0], [1, 1, 1.0]], {"family": "binomial", "trials": 2}, "up to trials=2"),
        ([[0, 0, 1.0], [5, 1, 2.0]], {"n_sites": 3}, "n_sites=3 is too small: a visit has number 5"),
        ([[0, 0, 1.0], [1, 1, 2.0]], {"family": "cauchy"}, "family='cauchy'"),
        ([[0, 0, 1.0], [1, 1, 2.0]], {"rank": -1}, "rank=-1"),
        ([[0, 0, 1.0], [1, 1, 2.0]], {"penalty": 0.0}, "penalty=0.0"),
    ],
)
def test_what_cannot_work_is_refused(rows, options, said):
    with pytest.raises(ValueError, match=said):
        up.FedMissEM(**options).fit({"a": np.array(rows, float)})


@cache
def in_unit(unit, family, rank):
    rows = seen("poisson")
    scaled = np.column_stack([rows[:, :2], unit * rows[:, 2]])
    return up.FedMissEM(rank, family, **QUICK).fit(scaled)


@pytest.mark.parametrize("unit", [1000.0, 0.037])
@pytest.mark.parametrize(("family", "rank"), [("auto", None), ("gaussian", 1), ("poisson", 1), ("tweedie", 1)])
def test_the_fit_is_the_same_in_any_unit(family, rank, unit):
    own, other = in_unit(1.0, family, rank), in_unit(unit, family, rank)
    assert own.family_ == other.family_
    assert own.rank_ == other.rank_
    assert_allclose(other.table(), unit * own.table(), rtol=1e-6)
    assert_allclose(other.totals_std_, unit * own.totals_std_, rtol=1e-6)
    if family == "auto":
        assert own.family_ in ("poisson", "tweedie")


def test_a_gaussian_table_may_be_shifted():
    rows = seen("gaussian")
    shifted = np.column_stack([rows[:, :2], 32 + 1.8 * rows[:, 2]])
    own, other = (up.FedMissEM(1, "gaussian").fit(x) for x in (rows, shifted))
    assert_allclose(other.table(), 32 + 1.8 * own.table(), rtol=1e-6)
    assert_allclose(other.dispersion_, 1.8**2 * own.dispersion_, rtol=1e-6)


def test_the_penalty_is_chosen_by_visits_held_back():
    rng = np.random.default_rng(5)
    noise = 5.0 + 0.05 * rng.normal(size=(80, 1)) + rng.normal(size=(80, 10))
    effects = 5.0 + rng.normal(size=(80, 1)) + 0.1 * rng.normal(size=(80, 10))
    chosen = [
        up.FedMissEM(0, "gaussian").fit(visits(np.where(rng.random((80, 10)) < 0.4, t, np.nan)))
        for t in (noise, effects)
    ]
    shrunk, kept = (np.std(model.sites_[:, 0]) for model in chosen)
    assert shrunk < 0.3
    assert_allclose(kept, 1.0, rtol=0.2)


def test_negative_values_have_the_gaussian_family():
    assert up.FedMissEM(0).fit(visits(TABLES["gaussian"] - 3.0)).family_ == "gaussian"


def test_a_tweedie_deviance_is_that_of_scikit_learn():
    from sklearn.metrics import mean_tweedie_deviance

    value, mean = RNG.poisson(2.0, size=50).astype(float), RNG.gamma(2.0, size=50)
    ours = families.deviance(value, mean, "tweedie", 1).mean()
    assert_allclose(ours, mean_tweedie_deviance(value, mean, power=1.5))


def test_folds_depend_on_the_cell_alone():
    rows = seen("poisson")
    other = rows.copy()
    other[:, 2] *= 3
    assert (fold_of(rows, 5) == fold_of(other, 5)).all()
    assert_allclose(np.bincount(fold_of(rows, 5)) / len(rows), 0.2, atol=0.06)


@pytest.mark.parametrize(("site", "date"), [(1, 1), (2, 7), (1023, 1024), (5000, 3), (2_000_000, 70_001)])
def test_the_size_of_the_table_is_found_by_sums(site, date):
    fed = up.federate({"a": np.array([[0.0, date, 2.0], [0.0, 0.0, 3.0]]), "b": np.array([[site, 0.0, 1.0]])})
    assert find_size(fed, None, None) == (site + 1, date + 1)
    assert all(row.kind == "sum" for row in fed.journal.exchanges)
