"""MixtureImputer: the same over clients as pooled, better than the mean, intervals that cover, scikit-learn's transformer."""

from unittest import SkipTest

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.utils.estimator_checks import estimator_checks_generator

import unpooled as up
from unpooled.maths import imputation
from unpooled.maths.gaussian import pack_triangle
from unpooled.maths.mixture import Params
from unpooled.models.mixture_imputer import candidates, choice

RNG = np.random.default_rng(0)
COV = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.2], [0.3, 0.2, 1.0]])
FULL = np.concatenate([RNG.multivariate_normal([0, 0, 0], COV, 250), RNG.multivariate_normal([6, -6, 0], COV, 250)])
HOLES = (RNG.random(FULL.shape) < 0.2) & (np.arange(3) != RNG.integers(3, size=(500, 1)))
TABLE = np.where(HOLES, np.nan, FULL)
BY = RNG.integers(3, size=500)


def quick():
    """Default parameters, but fewer rounds for the choice."""
    return up.MixtureImputer(choose_iter=8)


@pytest.fixture(scope="module", autouse=True)
def few_sizes():
    """Fewer candidates, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "SIZES", (2, 3))
        yield


@pytest.fixture(scope="module")
def fitted(few_sizes):
    return quick().fit(up.federate(TABLE, by=BY, mode="one by one"))  # merged, clients would be the pooled rows


def error(filled):
    return np.sqrt(np.mean((filled - FULL)[HOLES] ** 2))


def test_over_clients_it_is_the_pooled_one(fitted):
    pooled = quick().fit(TABLE)
    assert pooled.n_components_ == fitted.n_components_
    assert_allclose(fitted.transform(TABLE), pooled.transform(TABLE), rtol=1e-8)
    assert_allclose(fitted.interval(TABLE), pooled.interval(TABLE), rtol=1e-6)


def test_two_clusters_are_found_by_hidden_cells_and_gaps_filled_well(fitted):
    assert fitted.n_components_ >= 2
    assert error(fitted.transform(TABLE)) < 0.35 * error(np.where(HOLES, np.nanmean(TABLE, axis=0), FULL))
    assert (fitted.transform(TABLE)[~HOLES] == FULL[~HOLES]).all()


def test_mixtures_count_only_as_far_as_halves_of_the_rows_support_them():
    """Two candidates, one Gaussian and one mixture, in three columns of numbers."""
    rng = np.random.default_rng(4)
    alone = np.tile([True, False], (3, 1))
    columns = choice.Columns(alone, np.ones((3, 2), bool), np.zeros(3, bool), np.zeros((3, 2, 2)))
    cells = np.full((2, 3), 200.0)

    def reach(spread, agree):
        """`spread` of the mixture's errors against 1; `agree` says whether both halves have them so."""
        errors = rng.normal(size=(2, 3, 200, 2)) * np.array([1.0, spread])
        if not agree:
            errors[1, ..., 1] = 2.0 * rng.normal(size=(3, 200))
        gram = np.einsum("hjnc,hjnd->hjcd", errors, errors)
        return choice._reach(gram, cells, columns)

    assert reach(0.3, agree=True) > 0.9
    assert reach(3.0, agree=True) < 1.0
    assert reach(0.3, agree=False) < 0.5


def test_a_small_table_gets_few_components_and_is_filled_as_by_one():
    rng = np.random.default_rng(3)
    full = rng.multivariate_normal([0, 0, 0], COV, 60)
    gone = rng.random(full.shape) < 0.1
    gone[gone.all(axis=1)] = False
    small = np.where(gone, np.nan, full)
    chosen, one = up.MixtureImputer().fit(small), up.MixtureImputer(n_components=1).fit(small)
    errors = [np.sqrt(((model.transform(small) - full)[gone] ** 2).mean()) for model in (chosen, one)]
    assert chosen.n_components_ <= 3
    assert errors[0] < 1.05 * errors[1]


def test_intervals_cover_what_they_say(fitted):
    for coverage in (0.5, 0.9):
        low, high = fitted.interval(TABLE, coverage)
        inside = ((low <= FULL) & (high >= FULL))[HOLES].mean()
        assert abs(inside - coverage) < 0.08
        assert (low[~HOLES] == FULL[~HOLES]).all()


def test_draws_have_the_mean_and_the_spread_of_the_gap(fitted):
    draws = np.array(fitted.draw(TABLE[:40], 400, random_state=1))
    holes = HOLES[:40]
    off = draws.mean(axis=0) - fitted.transform(TABLE[:40])
    assert (np.abs(off[holes]) < 5 * draws.std(axis=0)[holes] / np.sqrt(400)).all()
    assert (draws.std(axis=0)[holes] > 0.1).all()
    assert (draws.std(axis=0)[~holes] < 1e-12).all()


def test_quantiles_undo_the_distribution_function():
    params = Params(
        np.array([0.3, 0.7]), np.array([[0.0, 0.0], [5.0, 1.0]]), pack_triangle(np.tile(np.eye(2), (2, 1, 1)))
    )
    law = imputation.laws(params, np.array([[np.nan, 0.4], [1.0, np.nan]]))
    for p in (0.05, 0.5, 0.95):
        assert_allclose(imputation.cdf(law, imputation.quantile(law, p)), p, atol=1e-9)


def test_hidden_cells_do_not_depend_on_the_split():
    x = np.random.default_rng(0).normal(size=(2000, 6))
    whole = imputation.hidden(x, 0.1)
    parts = np.concatenate([imputation.hidden(x[s], 0.1) for s in (slice(0, 700), slice(700, None))])
    assert (whole == parts).all()
    assert_allclose(whole.mean(axis=0), 0.1, atol=0.03)
    assert abs(np.corrcoef(whole[:, 0], whole[:, 1])[0, 1]) < 0.1


def test_the_choice_never_sees_the_table_that_is_asked_about(fitted):
    """What `transform` gets may be anything: the fit is done."""
    assert np.isfinite(fitted.transform(np.full((2, 3), np.nan))).all()
    means = np.stack([params.weights @ params.means for params in fitted.mixtures_])  # (c, d)
    expected = np.einsum("dc,cd->d", fitted.shares_, means)  # then drawn towards the column's mean, which is close by
    assert_allclose(fitted.transform(np.full((1, 3), np.nan))[0], expected, rtol=1e-5)


def test_it_is_saved_and_loaded(fitted, tmp_path):
    back = up.load(fitted.save(tmp_path / "m"))
    assert (back.transform(TABLE) == fitted.transform(TABLE)).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": "many"}, "n_components='many'"),
        ({"hide": 0.9}, "hide=0.9"),
        ({"hide": 0.0}, "hide=0 leaves no cells"),
        ({"prior": -1.0}, "prior=-1.0"),
    ],
)
def test_what_cannot_work_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        up.MixtureImputer(**options).fit(TABLE)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks():
    """All of them, one by one."""
    failed = []
    for estimator, check in estimator_checks_generator(up.MixtureImputer(n_components=1, prior=1.0, max_iter=5)):
        name = getattr(check, "func", check).__name__
        try:
            check(estimator)
        except SkipTest:
            continue
        except Exception as error:
            failed.append((name, str(error)[:80]))
    assert failed == []
