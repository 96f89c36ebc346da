"""The private regression, k-means and moments: near to the fits without privacy, intervals that cover, refusals."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression

import unpooled as up
from unpooled.errors import BadParameter
from unpooled.layers.private import Private
from unpooled.models.private import ColumnMoments, PrivateKMeans, PrivateRegression, fit_private
from unpooled.models.private.regression import clipped_square, shares_below
from unpooled.models.private.regression_questions import EDGES

RNG = np.random.default_rng(0)
N = 10_000
X = RNG.normal(size=(N, 4)) @ RNG.normal(size=(4, 4)) * [1, 10, 0.1, 3] + [0, 100, 1, -5]
Y = X @ [1.0, 0.2, -5.0, 0.5] + RNG.standard_t(4, size=N) * 2
HALF = 5 * X.std(0)
BOUNDS = np.vstack([np.stack([X.mean(0) - HALF, X.mean(0) + HALF], 1), [Y.mean() - 40, Y.mean() + 40]])


def private(epsilon=1.0, x=X, y=Y, bounds=BOUNDS, **how):
    fed = up.federate({"a": (x[::2], y[::2]), "b": (x[1::2], y[1::2])})
    return Private(fed, epsilon=epsilon, delta=1e-5, bounds=bounds, **({"secret": b"r" * 32} | how))


@pytest.mark.parametrize(("epsilon", "excess"), [(0.5, 1.02), (1.0, 1.005), (4.0, 1.002)])
def test_the_error_is_nearly_that_of_the_fit_without_privacy(epsilon, excess):
    fed = private(epsilon)
    train, test = slice(0, N, 2), slice(1, N, 2)
    del train
    ours = PrivateRegression().fit(fed)
    error = lambda model: np.sqrt(np.mean((model.predict(X[test]) - Y[test]) ** 2))  # noqa: E731
    assert error(ours) < excess * error(LinearRegression().fit(X, Y))
    assert fed.accountant.spent.epsilon == pytest.approx(epsilon, abs=1e-4)
    np.testing.assert_allclose(ours.predict(X[:9]), X[:9] @ ours.coef_ + ours.intercept_, rtol=1e-10)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_cover(epsilon, level):
    low, high = PrivateRegression().fit(private(epsilon)).interval(X, level)
    assert np.mean((low <= Y) & (high >= Y)) == pytest.approx(level, abs=0.03)


def test_the_spread_of_coefficients_over_secrets_is_what_the_posterior_says():
    fits = [PrivateRegression().fit(private(0.5, secret=i.to_bytes(32, "big"))) for i in range(40)]
    predicted = np.array([f.predict(X[:50]) for f in fits])
    seen = predicted.std(0)
    z = [(X[:50] - f.design_.scaling.x_mean) / f.design_.scaling.x_scale - f.posterior_.feature_mean for f in fits]
    spread = [
        ((zi @ f.posterior_.basis) ** 2 @ f.posterior_.axis_variance)[:, 0] + f.posterior_.intercept_variance
        for zi, f in zip(z, fits)
    ]
    said = np.sqrt(np.mean(spread, 0)) * np.mean([f.design_.scaling.y_scale for f in fits])
    assert 0.5 < np.median(seen / said) < 1.5


def test_the_public_regression_is_fitted_by_its_private_counterpart(tmp_path):
    model = fit_private(up.BayesianRegression(), private())
    direct = PrivateRegression().fit(private())
    np.testing.assert_array_equal(model.predict(X[:5]), direct.predict(X[:5]))
    model.save(tmp_path)
    loaded = up.load(tmp_path)
    np.testing.assert_array_equal(loaded.interval(X[:5]), model.interval(X[:5]))
    with pytest.raises(BadParameter, match="a private fit keeps no exact sums"):
        model.forget("a")
    with pytest.raises(BadParameter, match="a private fit keeps no exact sums"):
        model.partial_fit({"c": (X[:10], Y[:10])})


def test_a_fit_without_privacy_afterwards_is_exact_again():
    model = fit_private(up.BayesianRegression(), private())
    model.fit({"a": (X, Y)})
    np.testing.assert_allclose(model.coef_, up.BayesianRegression().fit({"a": (X, Y)}).coef_, rtol=1e-12)


def test_gaps_stand_at_the_mean():
    gone = np.where(np.random.default_rng(0).random(X.shape) < 0.05, np.nan, X)
    fit = PrivateRegression().fit(private(2.0, x=gone))
    assert np.isfinite(fit.coef_).all()
    assert np.corrcoef(fit.predict(X), Y)[0, 1] > 0.95 * np.corrcoef(LinearRegression().fit(X, Y).predict(X), Y)[0, 1]


def test_the_target_needs_bounds_and_there_must_be_one():
    fed = private(bounds=BOUNDS[:4])
    with pytest.raises(BadParameter, match="bounds= has no entry for the target"):
        PrivateRegression().fit(fed)
    assert fed.accountant.spent.looks == 0


def test_the_histogram_of_residuals_is_made_to_rise():
    noise = np.random.default_rng(0).normal(size=len(EDGES) + 1) * 30
    counts = np.histogram(np.random.default_rng(1).normal(size=5000), np.concatenate([[-9], EDGES, [9]]))[0]
    shares = shares_below(counts + noise, 5000.0)
    assert np.all(np.diff(shares) >= 0)
    assert np.interp(0.05, shares, EDGES) == pytest.approx(-1.645, abs=0.15)
    assert clipped_square(50.0) == pytest.approx(1.0)
    sample = np.clip(np.random.default_rng(2).normal(size=200_000), -2, 2)
    assert clipped_square(2.0) == pytest.approx(np.mean(sample**2), rel=0.01)


# ---- moments and clusters ----


def test_means_and_deviations_with_their_errors():
    errors = []
    for i in range(60):
        fed = private(secret=i.to_bytes(32, "big"), bounds=BOUNDS[:4])
        found = ColumnMoments().fit(fed)
        errors.append((found.mean_ - X.mean(0)) / found.mean_stderr_)
    assert np.std(errors) == pytest.approx(1.0, abs=0.2)
    assert found.n_rows_ == pytest.approx(N, rel=0.02)
    np.testing.assert_allclose(found.std_, X.std(0), rtol=0.1)
    np.testing.assert_array_equal(found.missing_, 0)


def test_the_share_of_missing_values():
    gone = X.copy()
    gone[: N // 2, 1] = np.nan
    found = ColumnMoments().fit(private(4.0, x=gone, bounds=BOUNDS[:4]))
    np.testing.assert_allclose(found.missing_, [0, 0.5, 0, 0], atol=0.02)
    assert found.mean_[1] == pytest.approx(np.nanmean(gone[:, 1]), abs=0.1 * X[:, 1].std())


def test_clusters_come_near_to_those_without_privacy():
    rng = np.random.default_rng(0)
    centres = rng.uniform(-5, 5, size=(6, 2))
    x = centres[rng.integers(0, 6, 9000)] + 0.5 * rng.normal(size=(9000, 2))
    fed = Private(up.federate({"a": x}), epsilon=1, delta=1e-5, bounds=[[-10, 10]] * 2, secret=b"k" * 32)
    ours = PrivateKMeans(6, random_state=0).fit(fed)
    theirs = KMeans(6, n_init=10, random_state=0).fit(x / ours.scale_)
    inertia = lambda c: (((x / ours.scale_)[:, None] - c) ** 2).sum(-1).min(1).sum()  # noqa: E731
    assert inertia(ours.cluster_centers_ / ours.scale_) < 1.05 * theirs.inertia_
    assert len(set(ours.predict(x))) == 6
    assert fed.accountant.spent.epsilon == pytest.approx(1.0, abs=1e-4)
