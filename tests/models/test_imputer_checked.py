"""MixtureImputer far from the mean: leaps of EM, bounds by all single Gaussians, predictions that hidden cells have not checked."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.maths import imputation, mixture
from unpooled.maths.gaussian import pack_triangle, unpack_triangle
from unpooled.maths.imputation import Laws
from unpooled.maths.mixture import Params
from unpooled.models.mixture_imputer import candidates, checked, ensemble
from unpooled.models.mixture_imputer.leaps import leap

RNG = np.random.default_rng(0)


def towns(rows=200):
    """Columns that a common size nearly determines, of which one row is by far the largest and has gaps."""
    size = RNG.lognormal(0, 0.5, rows)
    size[0] = 60.0
    full = size[:, None] * np.array([1.0, 2.0, 3.0, 4.0]) * np.exp(0.02 * RNG.normal(size=(rows, 4)))
    holes = (RNG.random(full.shape) < 0.2) & (np.arange(4) != RNG.integers(4, size=(rows, 1)))
    holes[0] = [False, False, True, False]
    return full, np.where(holes, np.nan, full)


def fitted_by_em(x, rounds, path):
    """One Gaussian after so many rounds, with or without leaps, and its log-likelihood a row."""
    mean, scale = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
    params = Params(np.ones(1), mean[None], pack_triangle(np.diag(scale**2)[None]))
    c = candidates.Candidate(params, 0.01, 0.0, -np.inf, False)
    for _ in range(rounds):
        stats = mixture.e_step(c.params, x, np.ones(len(x)), "full")
        c = candidates.moved(c, stats, mean, scale, 0.0)
        c = c if path else c._replace(path=())
    stats = mixture.e_step(c.params, x, np.ones(len(x)), "full")
    return c, float(stats.loglik / stats.rows)


def test_leaps_lead_further_than_steps_of_em():
    rows = RNG.normal(size=(120, 1)) + 0.3 * RNG.normal(size=(120, 4))
    gaps = np.where((RNG.random(rows.shape) < 0.5) & (np.arange(4) != RNG.integers(4, size=(120, 1))), np.nan, rows)
    _, by_steps = fitted_by_em(gaps, 12, path=False)
    _, by_leaps = fitted_by_em(gaps, 12, path=True)
    _, at_the_end = fitted_by_em(gaps, 1000, path=False)
    assert at_the_end - by_leaps < 0.5 * (at_the_end - by_steps)


def test_leaps_do_not_depend_on_units():
    gaps, units = towns()[1], np.array([1e6, 1.0, 1e-4, 10.0])
    one, scaled = fitted_by_em(gaps, 9, path=True)[0].params, fitted_by_em(gaps * units, 9, path=True)[0].params
    assert_allclose(scaled.means, one.means * units, rtol=1e-6)


def test_a_leap_that_leaves_the_positive_definite_covariances_is_shortened():
    steps = [Params(np.ones(1), np.zeros((1, 2)), pack_triangle((v * np.eye(2) + 0.1)[None])) for v in (2.0, 1.0, 0.2)]
    there = leap(*steps, np.ones(2))
    assert np.linalg.eigvalsh(unpack_triangle(there.covs)[0])[0] > 0


def test_components_stay_near_the_hull_of_single_gaussians():
    law = Laws(np.zeros(1, int), np.zeros(1, int), np.ones((1, 1)), np.array([[50.0]]), np.ones((1, 1)))
    singles = [law._replace(means=np.array([[m]]), scales=np.array([[s]])) for m, s in ((1.0, 0.5), (6.0, 9.0))]
    assert ensemble.anchored(law, singles).means[0, 0] == 6.0 + 3 * 0.5
    assert ensemble.anchored(singles[1], singles).means[0, 0] == 6.0
    assert ensemble.anchored(law, []) is law


def errors(truth, *predictions):
    """Sums of products of errors over cells of two columns, (2, 1 + c, 1 + c), the mean's first."""
    off = np.stack([truth, *(truth - p for p in predictions)], axis=-1)  # (2, cells, 1 + c)
    return np.einsum("jnc,jnd->jcd", off, off)


def test_what_was_checked_is_the_sum_of_squared_predictions(monkeypatch):
    monkeypatch.setattr(checked, "CELLS", 0.0)
    truth = RNG.normal(size=(2, 100))
    prediction = 0.8 * truth + 0.3 * RNG.normal(size=(2, 100))
    squares, unexplained = checked.checks(
        errors(truth, prediction, 0 * truth), np.full(2, 100.0), np.tile([1.0, 0.0], (2, 1)), np.array([True, False])
    )
    off, size = ((truth - prediction)[0] ** 2).sum(), (prediction[0] ** 2).sum()
    assert_allclose(squares[0], size)
    assert_allclose(unexplained, [off / (off + size), 0.0])


def test_predictions_far_beyond_what_was_checked_lose_the_part_that_is_unexplained():
    law = Laws(np.arange(3), np.full(3, 1), np.ones((3, 1)), np.array([[7.0], [2e6], [5.0]]), np.ones((3, 1)))
    known = checked.Checked(np.array([0.0, 5.0]), np.array([1.0, 2.0]), np.array([1.0, 99.0]), np.array([1.0, 0.5]))
    moved = checked.shrunk(law, known)
    assert_allclose(moved.means[:, 0], [5 + 2 / (1 + 0.25 / 100), 2e6 / 1.25, 5.0], rtol=1e-5)
    assert_allclose(moved.scales, law.scales)
    exact = known._replace(unexplained=np.zeros(2))
    assert_allclose(checked.shrunk(law, exact).means, law.means)


@pytest.fixture(scope="module")
def rare():
    """A table with two columns that are constant but for a few rows, and an imputer fitted to it."""
    x = RNG.normal(size=(240, 4)) @ (np.eye(4) + 0.3)
    rows = RNG.permutation(240)[:8]
    x = np.column_stack([x, np.isin(np.arange(240), rows[:4]) * 0.5, np.isin(np.arange(240), rows[3:]) * 0.83])
    gaps = np.where((RNG.random(x.shape) < 0.15) & (np.arange(6) != RNG.integers(6, size=(240, 1))), np.nan, x)
    return gaps, up.MixtureImputer(choose_iter=8).fit(gaps, by=np.arange(240) % 3)


def test_a_lone_value_far_out_moves_predictions_less_than_the_mixtures_say(rare):
    _, model = rare
    row = np.array([[0.0, 0.0, 0.0, 0.0, 50.0, np.nan]])
    said = imputation.mean(model._joined(model._laws(row), 5))[0]
    left = (model.transform(row)[0, 5] - model.checked_.mean[5]) / (said - model.checked_.mean[5])
    assert 0.5 <= left < 0.95


def test_intervals_and_draws_move_with_the_mean(rare):
    _, model = rare
    row = np.array([[0.0, 0.0, 0.0, 0.0, 10.0, np.nan]])
    low, high = model.interval(row)
    filled = model.transform(row)
    assert low[0, 5] <= filled[0, 5] <= high[0, 5]
    plain = up.MixtureImputer()
    plain.__dict__.update(model.__dict__)
    plain.checked_ = None
    draws = [m.draw(row, 3, random_state=1) for m in (model, plain)]
    shift = filled[0, 5] - plain.transform(row)[0, 5]
    assert_allclose(np.array(draws[0])[:, 0, 5], np.array(draws[1])[:, 0, 5] + shift)


def test_units_split_and_saving_change_nothing(rare, tmp_path):
    gaps, model = rare
    pooled = up.MixtureImputer(choose_iter=8).fit(gaps)
    assert_allclose(pooled.transform(gaps), model.transform(gaps), rtol=1e-6, atol=1e-8)
    assert_allclose(pooled.checked_.squares, model.checked_.squares, rtol=1e-5)
    back = up.load(model.save(tmp_path / "m"))
    assert (back.transform(gaps) == model.transform(gaps)).all()
