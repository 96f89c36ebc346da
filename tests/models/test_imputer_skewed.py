"""MixtureImputer with skewed columns: which ones are found, and mixtures of their logarithms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import unpooled as up
from unpooled.maths.imputation import Laws
from unpooled.models.mixture_imputer import candidates, ensemble, logarithms
from unpooled.models.mixture_imputer.embedding import Embedding

RNG = np.random.default_rng(0)
COMMON = RNG.normal(size=(160, 1))
NORMAL = 10 + COMMON + 0.5 * RNG.normal(size=(160, 2))
SKEWED = np.exp(1.2 * COMMON + 0.3 * RNG.normal(size=(160, 2)))
FULL = np.column_stack([SKEWED, NORMAL])
HOLES = (RNG.random(FULL.shape) < 0.2) & (np.arange(4) != RNG.integers(4, size=(160, 1)))
TABLE = np.where(HOLES, np.nan, FULL)
BY = RNG.integers(3, size=160)


def quick():
    """Default parameters, but fewer rounds for the choice."""
    return up.MixtureImputer(choose_iter=8)


@pytest.fixture(scope="module", autouse=True)
def few_sizes():
    """Fewer candidates, which take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "SIZES", (2,))
        yield


@pytest.fixture(scope="module")
def fitted(few_sizes):
    return quick().fit(up.federate(TABLE, by=BY, mode="one by one"))


def error(model):
    return np.sqrt(np.mean(((model.transform(TABLE) - FULL) / FULL.std(axis=0))[HOLES] ** 2))


def test_gaps_of_skewed_tables_are_filled_better_with_logarithms(fitted, monkeypatch):
    assert fitted.skewed_ == [0, 1]
    assert any(fitted.logs_)
    monkeypatch.setattr(logarithms, "skewed_columns", lambda fed, embedding, frame, seen: ((), frame))
    without = quick().fit(TABLE, by=BY)
    assert not any(without.logs_)
    assert error(fitted) < 0.95 * error(without)


def test_over_clients_it_is_the_pooled_one_and_intervals_cover(fitted):
    pooled = quick().fit(TABLE)
    assert pooled.logs_ == fitted.logs_
    assert_allclose(fitted.transform(TABLE), pooled.transform(TABLE), rtol=1e-8)
    low, high = fitted.interval(TABLE)
    inside = ((low <= FULL) & (high >= FULL))[HOLES].mean()
    assert 0.8 < inside < 0.97


def test_columns_with_values_that_have_no_logarithm_stay_as_they_are():
    with_zero = np.array(TABLE)
    with_zero[np.flatnonzero(~np.isnan(TABLE[:, 0]))[0], 0] = 0.0
    for units in (np.ones(4), np.array([1e9, 1e-6, 1e3, 1.0])):
        rows = with_zero * units
        fed, embedding = up.federate({"a": rows[:80], "b": rows[80:]}), Embedding(["real"] * 4, [0] * 4)
        frame, seen = logarithms.start_frame(fed, embedding)
        skewed, log_frame = logarithms.skewed_columns(fed, embedding, frame, seen)
        assert skewed == (1,)
        assert_allclose(log_frame.mean[1], np.nanmean(np.log(rows[:, 1])))
        assert_allclose(log_frame.mean[[0, 2, 3]], frame.mean[[0, 2, 3]])


def test_new_rows_may_have_values_without_a_logarithm(fitted):
    filled = fitted.transform(np.array([[0.0, np.nan, np.nan, 10.0], [-1.0, 2.0, 9.0, np.nan]]))
    assert np.isfinite(filled).all()
    assert_allclose(filled[:, 0], [0.0, -1.0])
    assert np.isfinite(fitted.draw(TABLE, 1)[0]).all()


def test_a_mixture_of_logarithms_has_log_normal_moments_and_does_not_stray():
    embedding = Embedding(["real", "real"], [0, 0], skewed=[1])
    plain = np.array([[np.nan, np.nan]])
    law = Laws(np.zeros(2, int), np.arange(2), np.ones((2, 1)), np.array([[3.0], [1.0]]), np.array([[0.5], [0.4]]))
    own = ensemble._from_logarithms(law, plain, embedding, None)
    assert_allclose(own.means[:, 0], [3.0, np.exp(1.08)])
    assert_allclose(own.scales[:, 0], [0.5, np.exp(1.08) * np.sqrt(np.expm1(0.16))])
    single = law._replace(means=np.array([[3.0], [1.0]]), scales=np.array([[0.5], [0.1]]))
    bounded = ensemble.anchored(ensemble._from_logarithms(law, plain, embedding, single), [single])
    assert_allclose(bounded.means[:, 0], [3.0, 1.3])
    assert_allclose(bounded.scales[:, 0], [0.5, 0.3])
