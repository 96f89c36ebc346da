"""The private mixture: exact EM without noise, near the fit without privacy with it, missing values, shapes, refusals."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture as Pooled

import unpooled as up
from unpooled.errors import BadParameter
from unpooled.layers.private import Private
from unpooled.maths import gaussian, mixture
from unpooled.models.private import PrivateGaussianMixture, fit_private, rounds_private
from unpooled.models.private.clipped_moments import best_block_weights, clipped_share
from unpooled.models.private.e_step import EStepRequest, whitened_sums
from unpooled.models.private.frame import Frame
from unpooled.models.private.update import read_sums
from unpooled.models.private.whiten import log_mixture, whiten
from unpooled.privacy.accountant import BudgetSpent

RNG = np.random.default_rng(3)
MEANS = np.array([[-4.0, 0.0, 1.0], [3.0, 3.0, -2.0], [2.0, -4.0, 2.0]])
LABEL = RNG.choice(3, 9000, p=[0.5, 0.3, 0.2])
MIX = np.array([[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.2, 0.7]])
X = MEANS[LABEL] + RNG.normal(size=(9000, 3)) @ MIX.T
BOUNDS = [[-12, 12]] * 3
SECRET = b"m" * 32


def private(x=X, epsilon=1.0, parts=3, **how):
    fed = up.federate({f"c{i}": x[i::parts] for i in range(parts)})
    return Private(fed, epsilon=epsilon, delta=1e-5, bounds=BOUNDS, **({"secret": SECRET} | how))


# ---- one look, without noise ----


def sums_without_noise(x, params, shape, radius):
    k, d = params.means.shape
    frame = Frame(np.array([[-100.0, 100.0]] * d), np.zeros(d), np.full(d, 0.01))  # leaves rows as they are
    block_weights = best_block_weights(shape, k, d, radius)
    down = EStepRequest(frame, params, np.asarray(radius), block_weights)
    sums = up.federate({"a": x}).sum(whitened_sums.using(shape=shape), down)
    return read_sums(sums, 0.0, block_weights, radius, shape)


def start(shape):
    covs = np.tile(2 * np.eye(3), (3, 1, 1))
    return mixture.Params(np.full(3, 1 / 3), MEANS + 0.5, gaussian.pack_covs(gaussian.reshape_covs(covs, shape), shape))


@pytest.mark.parametrize("shape", gaussian.SHAPES)
@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_a_look_without_noise_or_clipping_is_the_e_step(shape, gaps):
    x = np.where(np.random.default_rng(0).random(X.shape) < gaps, np.nan, X)[:2000]
    params, radius = start(shape), 60.0
    seen = sums_without_noise(x, params, shape, radius)
    exact = mixture.e_step(params, x, np.ones(len(x)), shape)
    np.testing.assert_allclose(seen.n, exact.n, rtol=1e-3)
    lower = np.linalg.cholesky(gaussian.full_covs(params, shape))
    first = np.einsum("kij,kj->ki", lower, seen.first)
    np.testing.assert_allclose(first, exact.x, atol=1e-3 * len(x) * radius / 60)
    second = (
        lower[: len(seen.second)] @ seen.second @ lower[: len(seen.second)].swapaxes(1, 2) * clipped_share(3, radius)
    )
    packed = gaussian.pack_covs(second if shape != "tied" else second[0], "tied" if shape == "tied" else "full")
    if shape in ("diag", "spherical"):
        packed = gaussian.reshape_covs(second, shape)
    np.testing.assert_allclose(packed, exact.xx, rtol=5e-3, atol=2e-3 * len(x))


def test_densities_of_rows_with_gaps_are_those_of_the_values_that_are_there():
    params = start("full")
    covs = gaussian.unpack_covs(params.covs, "full") @ MIX @ MIX.T
    covs = (covs + covs.swapaxes(1, 2)) / 2 + 3 * np.eye(3)
    x = X[:6].copy()
    x[1, 0] = x[2, [0, 2]] = np.nan
    x[3] = np.nan
    found = whiten(x, params.means, np.linalg.cholesky(covs))
    for i in range(6):
        seen = ~np.isnan(x[i])
        for j in range(3):
            law = multivariate_normal(params.means[j, seen], covs[j][np.ix_(seen, seen)]) if seen.any() else None
            expected = law.logpdf(x[i, seen]) if law else 0.0
            assert found.log_density[i, j] == pytest.approx(expected, abs=1e-10)
    joint = found.log_density + np.log(params.weights)
    packed = params._replace(covs=gaussian.pack_covs(covs, "full"))
    np.testing.assert_allclose(log_mixture(joint), mixture.log_density(packed, x, "full"), atol=1e-10)


# ---- whole fits ----


@pytest.mark.parametrize(("epsilon", "gap"), [(0.5, 0.1), (1.0, 0.03), (4.0, 0.005)])
def test_fits_come_near_to_the_fit_without_privacy(epsilon, gap):
    fed = private(epsilon=epsilon)
    ours = PrivateGaussianMixture(3, random_state=1).fit(fed)
    assert Pooled(3, random_state=0, n_init=3).fit(X).score(X) - ours.score(X) < gap
    assert fed.accountant.spent.epsilon == pytest.approx(epsilon, abs=1e-4)
    assert ours.epsilon_ == pytest.approx(epsilon, abs=1e-4)
    assert ours.n_rows_ == pytest.approx(9000, rel=0.05)


@pytest.mark.parametrize("shape", gaussian.SHAPES)
def test_all_shapes(shape):
    ours = PrivateGaussianMixture(3, covariance_type=shape, random_state=0).fit(private(epsilon=2.0))
    theirs = Pooled(3, covariance_type=shape, random_state=0, n_init=3).fit(X)
    assert ours.covariances_.shape == theirs.covariances_.shape
    assert theirs.score(X) - ours.score(X) < 0.03


def test_missing_values_are_integrated_out():
    x = np.where(np.random.default_rng(1).random(X.shape) < 0.15, np.nan, X)
    ours = PrivateGaussianMixture(3, random_state=0).fit(private(x, epsilon=2.0))
    assert Pooled(3, random_state=0, n_init=3).fit(X).score(X) - ours.score(X) < 0.05


def test_the_same_secret_and_seed_give_the_same_bits_and_another_secret_others():
    fits = [PrivateGaussianMixture(3, random_state=0).fit(private(secret=s)) for s in (SECRET, SECRET, b"o" * 32)]
    np.testing.assert_array_equal(fits[0].means_, fits[1].means_)
    assert np.abs(fits[0].means_ - fits[2].means_).max() > 1e-6


def test_a_repeated_fit_costs_nothing_and_gives_the_same():
    fed = private(epsilon_per_fit=0.5)
    first = PrivateGaussianMixture(2, random_state=0).fit(fed)
    spent = fed.accountant.spent
    again = PrivateGaussianMixture(2, random_state=0).fit(fed)
    assert fed.accountant.spent == spent
    np.testing.assert_array_equal(first.means_, again.means_)


def test_a_second_fit_is_refused_when_the_budget_is_spent():
    fed = private()
    PrivateGaussianMixture(1).fit(fed)
    with pytest.raises(BudgetSpent, match=r"epsilon 1.00 of 1.0 spent .*: nothing is left for another fit"):
        PrivateGaussianMixture(2, random_state=0).fit(fed)


def test_a_fit_can_go_on_from_a_checkpoint_to_the_same_bits():
    whole = PrivateGaussianMixture(3, random_state=0).fit(private())
    moments = []
    for moment in PrivateGaussianMixture(3, random_state=0).rounds(private()):
        moments.append(moment)
        if len(moments) == 4:
            break
    other = PrivateGaussianMixture(3, random_state=0)
    for _ in other.rounds(private(), moments[-1]):
        pass
    np.testing.assert_array_equal(other.means_, whole.means_)


# ---- the public models ----


def test_the_public_mixture_is_fitted_by_its_private_counterpart(tmp_path):
    model = fit_private(up.GaussianMixture(3, random_state=0), private())
    direct = PrivateGaussianMixture(3, random_state=0).fit(private())
    np.testing.assert_array_equal(model.means_, direct.means_)
    assert model.predict(X[:5]).shape == (5,)
    model.save(tmp_path)
    np.testing.assert_array_equal(up.load(tmp_path).score_samples(X[:5]), model.score_samples(X[:5]))


def test_the_imputer_is_fitted_through_the_mixture():
    x = np.where(np.random.default_rng(1).random(X.shape) < 0.15, np.nan, X)
    model = fit_private(up.MixtureImputer(3), private(x, epsilon=2.0))
    gone = np.isnan(x)
    error = np.sqrt(np.mean((model.transform(x)[gone] - X[gone]) ** 2))
    plain = np.sqrt(np.mean((up.MixtureImputer(3).fit({"a": x}).transform(x)[gone] - X[gone]) ** 2))
    assert error < 1.05 * plain
    low, high = model.interval(x)
    assert 0.8 < np.mean((low[gone] <= X[gone]) & (X[gone] <= high[gone])) < 0.97


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            up.GaussianMixture([2, 3]),
            "would be chosen by likelihoods, which private looks do not release: give one number",
        ),
        (up.GaussianMixture("auto"), "give one number"),
        (up.GaussianMixture(2, personal_weights=True), "personal_weights= is not available in a private fit"),
        (up.GaussianMixture(2, means_init=np.zeros((2, 3))), "means_init= is not available in a private fit"),
        (up.GaussianMixture(2, solver="fedem"), "solver= is not available in a private fit"),
        (up.MixtureImputer("auto"), "give one number"),
        (up.FedGEM(), "FedGEM has no private fit: its answers have no bound"),
        (up.BayesianRegression(degree=2), "degree= is not available in a private fit"),
    ],
    ids=str,
)
def test_what_has_no_private_fit_is_refused_and_not_charged(model, sentence):
    fed = private()
    with pytest.raises(BadParameter, match=sentence):
        for _ in rounds_private(model, fed):
            pass
    assert fed.accountant.spent.looks == 0


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"covariance_type": "round"}, "covariance_type"),
        ({"reg_covar": -1.0}, "reg_covar"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_bad_parameters_are_refused_and_not_charged(changed, sentence):
    fed = private()
    with pytest.raises(BadParameter, match=sentence):
        PrivateGaussianMixture(**changed).fit(fed)
    assert fed.accountant.spent.looks == 0


def test_without_a_budget_there_is_no_private_fit():
    with pytest.raises(BadParameter, match="needs a privacy budget"):
        PrivateGaussianMixture(2).fit({"a": X})
