"""Values that are missing by their own size: found where the pattern of gaps says so, and not where chance or other columns explain it."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm

import unpooled as up
from unpooled.errors import DataWarning
from unpooled.maths import imputation
from unpooled.maths.gaussian import pack_triangle
from unpooled.maths.imputation import Laws, mean
from unpooled.maths.mixture import Params
from unpooled.models.mixture_imputer import selection
from unpooled.models.mixture_imputer.gap_sums import PART, gap_counts, gap_sums, looked_at

D = 5
COV = 0.5 * np.eye(D) + 0.5 * np.ones((D, D)) * np.outer([1, 1, 1, 1, -1], [1, 1, 1, 1, -1])
SINGLE = Params(np.ones(1), np.arange(D)[None].astype(float), pack_triangle(COV)[None])


def rows(seed, n=1000):
    return np.random.default_rng(seed).multivariate_normal(np.arange(D), COV, size=n)


def chance(logit, share=0.25):
    """Probabilities with this mean."""
    odds = 1 / (1 + np.exp(-logit))
    return odds * share / odds.mean(axis=0)


def with_gaps(x, how, seed):
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    by = {"own": z, "chance": 0 * z, "other": np.repeat(z[:, :1], D, axis=1)}[how]
    gaps = np.random.default_rng(seed).random(x.shape) < chance(2 * by)
    if how == "other":
        gaps[:, 0] = False
    gaps[gaps.all(axis=1)] = False
    return np.where(gaps, np.nan, x)


def imputer(**more):
    """One Gaussian, which is the quickest."""
    return up.MixtureImputer(n_components=1, prior=1.0, **more)


def fitted(x, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return imputer(**more).fit(x, by=np.arange(len(x)) % 3)


def asked_about(x):
    """Names of the sums of a fit of two clients."""
    fed = up.federate({"a": x[:150], "b": x[150:]})
    asked = []
    answers = fed.sum
    fed.sum = lambda question, down: asked.append(question.name) or answers(question, down)
    imputer().fit(fed)
    return asked


def foretold(x, row, column):
    """All standardised columns as the others than this one foretell them in one row, gap by gap."""
    there = ~np.isnan(x[row]) & (np.arange(D) != column)
    scale, at = np.sqrt(np.diag(COV)), np.where(there, x[row] - SINGLE.means[0], 0.0)
    slopes = COV[:, there] @ np.linalg.inv(COV[np.ix_(there, there)])
    return np.where(there, at, slopes @ at[there]) / scale


def test_sums_are_those_of_each_row_without_the_column():
    x = with_gaps(rows(1, 60), "chance", 1)
    w = np.random.default_rng(2).integers(0, 2, size=60).astype(float)
    columns = [0, 3]
    part = imputation.part(x, PART)
    sums = gap_sums(SINGLE, x, looked_at(x, w, columns), columns)
    counts = gap_counts(looked_at(x, w, columns))
    for i, j in enumerate(columns):
        for gap in (0, 1):
            some = np.flatnonzero((np.isnan(x[:, j]) == gap) & (w > 0) & ~np.isnan(x).all(axis=1) & part[:, j])
            expected = np.array([foretold(x, row, j) for row in some])
            assert sums.rows[gap, i] == len(some)
            assert_allclose(sums.foretold[gap, i], expected.sum(axis=0), atol=1e-6)
            assert_allclose(sums.squares[gap, i], (expected[:, j] ** 2).sum(), atol=1e-6)
            assert counts[gap][i] == len(some)


def test_sums_of_clients_add_up_whatever_the_split():
    x, w = with_gaps(rows(1), "own", 1), np.ones(1000)
    whole = gap_sums(SINGLE, x, looked_at(x, w, range(D)), range(D))
    some = slice(0, 7), slice(7, None)
    parts = [gap_sums(SINGLE, x[s], looked_at(x[s], w[s], range(D)), range(D)) for s in some]
    for total, one, other in zip(whole, *parts):
        assert_allclose(total, one + other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_effects_are_found_and_have_the_right_sign(seed):
    found = fitted(with_gaps(rows(seed), "own", seed)).missing_by_value_
    assert (found > 0.4).sum() >= 4
    assert (found < 2.2).all()
    x = rows(seed)
    turned = fitted(-with_gaps(x, "own", seed)).missing_by_value_  # other rows are looked at
    assert (turned < -0.3).sum() >= 4


@pytest.mark.parametrize("how", ["chance", "other"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nothing_is_moved_where_chance_or_another_column_explains_the_gaps(how, seed):
    x = with_gaps(rows(seed), how, seed)
    model = fitted(x)
    assert not model.missing_by_value_.any()
    assert (model.transform(x) == fitted(x, not_at_random=False).transform(x)).all()


def test_gaps_are_filled_better_and_intervals_cover_more():
    x = rows(4)
    gaps = with_gaps(x, "own", 4)
    holes = np.isnan(gaps)
    errors, covered = [], []
    for not_at_random in (True, False):
        model = fitted(gaps, not_at_random=not_at_random)
        low, high = model.interval(gaps)
        errors.append(np.sqrt(np.mean((model.transform(gaps) - x)[holes] ** 2)))
        covered.append(((low <= x) & (x <= high))[holes].mean())
    assert errors[0] < 0.93 * errors[1]
    assert covered[0] > covered[1] + 0.03


def test_draws_move_with_the_mean():
    gaps = with_gaps(rows(4), "own", 4)
    model = fitted(gaps)
    draws = np.array(model.draw(gaps, 300, random_state=0))
    holes = np.isnan(gaps)
    off = draws.mean(axis=0) - model.transform(gaps)
    assert (np.abs(off[holes]) < 5 * draws.std(axis=0)[holes] / np.sqrt(300)).all()


def test_it_warns_and_names_the_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(with_gaps(rows(0), "own", 0), columns=["age", "bmi", "bp", "chol", "hdl"])
    with pytest.warns(
        DataWarning, match=r"large values seem to be missing more often in columns .*bmi.*not_at_random=False"
    ):
        imputer().fit(frame)


def test_columns_with_few_gaps_are_not_asked_about():
    x = rows(0)
    x[:9, 1] = np.nan
    asked = asked_about(x)
    assert "mixture_imputer.e_step" in asked
    assert "mixture_imputer.gaps" not in asked


def test_two_columns_with_gaps_in_the_same_rows_but_one_do_not_show_that_row():
    """The difference of their sums would be that row, if all rows with a gap were in both."""
    x = rows(0, 300)
    x[:40, 1] = np.nan
    x[:41, 2] = np.nan
    seen = looked_at(x, np.ones(300), [1, 2])
    assert (seen.gaps[:, 0] != seen.gaps[:, 1]).sum() > 8
    sums = gap_sums(SINGLE, x, seen, [1, 2])
    there = [0, 3, 4]  # columns without gaps
    apart = (sums.foretold[1, 1] - sums.foretold[1, 0])[there]
    assert (np.abs(apart - (x[40] - np.arange(D))[there]) > 0.1).any()


def test_empty_rows_do_not_hide_that_a_sum_is_one_row():
    x = rows(0, 300)
    x[:80] = np.nan
    x[80, 1] = np.nan
    assert gap_counts(looked_at(x, np.ones(300), range(D))).gaps.max() <= 1
    asked = asked_about(x)
    assert "mixture_imputer.gap_counts" in asked
    assert "mixture_imputer.gaps" not in asked


def test_a_normal_law_moves_as_its_density_times_the_exponential():
    law = Laws(np.array([0]), np.array([1]), np.ones((1, 1)), np.array([[2.0]]), np.array([[0.8]]))
    b = 0.7

    def density(value):
        return np.exp(b * value / 1.5) * norm.pdf(value, 2.0, 0.8)

    mass = quad(density, -20, 20)[0]
    expected = quad(lambda value: value * density(value), -20, 20)[0] / mass
    scale = np.array([1.0, 1.5])
    moved = selection.moved(law, np.array([0.0, b]), scale)
    assert_allclose(mean(moved), expected, rtol=1e-6)
    assert selection.moved(law, np.array([b, 0.0]), scale) is law


def test_a_wide_component_of_few_rows_does_not_move_a_gap_far():
    wide = Laws(np.array([0]), np.array([0]), np.array([[0.95, 0.05]]), np.array([[0.0, 9.0]]), np.array([[0.5, 6.0]]))
    moved = selection.moved(wide, np.ones(1), np.ones(1))
    assert abs(mean(moved) - mean(wide)) <= 1.0


def test_a_column_of_few_distinct_values_is_moved_less():
    x = rows(3)
    x[:, 2] = x[:, 2] > np.quantile(x[:, 2], 0.97)
    model = fitted(with_gaps(x, "own", 3))
    assert model.missing_by_value_[[0, 1, 3]].min() > 0.2
    assert model.missing_by_value_[2] < 0.1
