"""E-step and M-step of a mixture: equal to scikit-learn's and to plain formulas, for any split, shift or separation."""

import functools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from mixtures import SHAPES, close, natural, oracle, random_mixture, sample
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from unpooled import tree
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params, Stats


def split(rng, x, clients):
    """Rows into ragged clients, some of them empty."""
    return np.split(x, np.sort(rng.integers(0, len(x), clients - 1)))


def stacked(parts):
    """Ragged clients padded to one width: rows (c, n, d) with NaN for padding, and weights."""
    width = max(len(x) for x in parts)
    x = np.stack([np.pad(x, ((0, width - len(x)), (0, 0)), constant_values=np.nan) for x in parts])
    return x, np.stack([np.arange(width) < len(x) for x in parts]).astype(float)


def fit(params, parts, shape, rounds, reg=1e-6):
    """EM over clients, one at a time when they are few and stacked when they are many."""
    jobs = [stacked(parts)] if len(parts) > 10 else [(x, np.ones(len(x))) for x in parts]
    for _ in range(rounds):
        answers = [mixture.e_step(params, x, w, shape) for x, w in jobs]
        total = tree.map(lambda a: a.sum(0), answers[0]) if len(parts) > 10 else functools.reduce(tree.add, answers)
        params = mixture.m_step(params, total, shape, reg)
    return params


def sklearn_fit(params, x, shape, rounds):
    covs = gaussian.unpack_covs(params.covs, shape)
    inverse = np.linalg.inv(covs) if shape in ("full", "tied") else 1 / covs
    start = {"weights_init": params.weights, "means_init": params.means, "precisions_init": inverse}
    model = GaussianMixture(len(params.weights), covariance_type=shape, tol=0, max_iter=rounds, **start)
    with pytest.warns(Warning, match="converge"):
        model.fit(x)
    return Params(model.weights_, model.means_, gaussian.pack_covs(model.covariances_, shape))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    truth = random_mixture(rng, 4, 6, "full", separation=1.0)
    x = sample(rng, truth, "full", 1500)
    return x, x[rng.choice(len(x), 4, replace=False)]


@pytest.mark.parametrize("clients", [1, 7, 300])
@pytest.mark.parametrize("rounds", [5, 50])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_scikit_learn_for_any_split(problem, shape, rounds, clients):
    x, means = problem
    start = Params(np.full(4, 0.25), means, natural(np.tile(2.0 * np.eye(6), (4, 1, 1)), shape))
    ours = fit(start, split(np.random.default_rng(clients), x, clients), shape, rounds)
    close(ours, sklearn_fit(start, x, shape, rounds), 1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shift_of_the_data_shifts_the_fit(problem, shape):
    x, means = problem
    start = Params(np.full(4, 0.25), means, natural(np.tile(2.0 * np.eye(6), (4, 1, 1)), shape))
    near = fit(start, [x], shape, 30)
    far = fit(start._replace(means=means + 1e6), [x + 1e6], shape, 30)
    close(far._replace(means=far.means - 1e6), near, 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("apart", [1e2, 1e5])
def test_components_far_apart(shape, apart):
    """Two neighbours and one that is 1e5 widths away: a common centre would lose all digits of the second moment."""
    rng = np.random.default_rng(2)
    params = random_mixture(rng, 3, 4, shape)
    params = params._replace(means=params.means + apart * np.array([0, 0, 1])[:, None])
    x = sample(rng, params, shape, 90)
    close(mixture.e_step(params, x, np.ones(90), shape), oracle(params, x, np.ones(90), shape), 1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_log_density(shape):
    rng = np.random.default_rng(3)
    params = random_mixture(rng, 3, 5, shape)
    x = rng.normal(size=(2, 40, 5))
    covs = gaussian.full_covs(params, shape)
    pairs = zip(params.weights, params.means, covs)
    expected = np.stack([np.log(w) + multivariate_normal(m, c).logpdf(x) for w, m, c in pairs], -1)
    np.testing.assert_allclose(mixture.log_joint(params, x, shape), expected, rtol=1e-11)
    np.testing.assert_allclose(mixture.log_density(params, x, shape), np.logaddexp.reduce(expected, -1), rtol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [0, 1, 7, 900, 5000])
def test_leading_axes_and_private_weights(shape, n):
    """Short leading indices go many at a time, long ones in pieces: both equal one alone. Padding may hold anything."""
    rng = np.random.default_rng(4)
    params = random_mixture(rng, 3, 4, shape)
    x, w = rng.normal(size=(2, 3, n, 4)), rng.integers(0, 3, (2, 3, n)) / 2
    x[w == 0] = np.nan
    log_weights = np.log(rng.dirichlet(np.ones(3), (2, 3)))
    stacked = mixture.e_step(params, x, w, shape, log_weights)
    assert stacked.x.shape == (2, 3, 3, 4)
    assert stacked.loglik.shape == stacked.rows.shape == (2, 3)
    for i in np.ndindex(2, 3):
        keep = w[i] > 0
        own = params._replace(weights=np.exp(log_weights[i]))
        single = mixture.e_step(own, x[i][keep], w[i][keep], shape)
        close(Stats(*(a[i] for a in stacked)), single, 1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_weight_of_two_is_the_row_twice(shape):
    rng = np.random.default_rng(5)
    params = random_mixture(rng, 3, 4, shape)
    x = rng.normal(size=(50, 4))
    twice = mixture.e_step(params, np.concatenate([x, x]), np.ones(100), shape)
    close(mixture.e_step(params, x, np.full(50, 2.0), shape), twice, 1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_float32_rows_with_float64_sums(shape, holes):
    rng = np.random.default_rng(6)
    params = random_mixture(rng, 3, 4, shape)
    x = sample(rng, params, shape, 5000).astype(np.float32)
    x[rng.random(x.shape) < holes] = np.nan
    single = mixture.e_step(params, x, np.ones(5000, np.float32), shape)
    assert all(a.dtype == np.float64 for a in single)
    close(single, mixture.e_step(params, x.astype(float), np.ones(5000), shape), 2e-5)


def test_whole_numbers_are_rows_too():
    params = random_mixture(np.random.default_rng(7), 2, 2, "full")
    x = np.array([[1, 2], [3, 4], [0, 1]])
    close(mixture.e_step(params, x, np.ones(3), "full"), mixture.e_step(params, x.astype(float), np.ones(3), "full"), 0)


def test_threads_do_not_disturb_each_other():
    rng = np.random.default_rng(8)
    jobs = []
    for i in range(12):
        params = random_mixture(rng, 2 + i % 3, 3 + i % 4, "full")
        jobs.append((params, rng.normal(size=(3000, 3 + i % 4)), np.ones(3000), "full"))
    alone = [mixture.e_step(*job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: mixture.e_step(*job), jobs))
    for a, b in zip(together, alone):
        close(a, b, 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_empty_component_stays_where_it_is(shape):
    rng = np.random.default_rng(9)
    params = random_mixture(rng, 3, 4, shape)
    params = params._replace(weights=np.array([0.5, 0.5, 0.0]))
    stats = mixture.e_step(params, rng.normal(size=(60, 4)), np.ones(60), shape)
    assert stats.n[2] == 0
    moved = mixture.m_step(params, stats, shape, 1e-6)
    assert all(np.isfinite(a).all() for a in moved)
    np.testing.assert_array_equal(moved.means[2], params.means[2])
    if shape != "tied":
        np.testing.assert_allclose(moved.covs[2], params.covs[2], rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_covariance_that_is_none_is_named(shape):
    params = random_mixture(np.random.default_rng(10), 3, 2, shape)
    covs = params.covs.copy()
    covs[-1] = -1.0
    with pytest.raises(ValueError, match=r"component.*raise reg_covar"):
        mixture.e_step(params._replace(covs=covs), np.zeros((5, 2)), np.ones(5), shape)


def test_weights_alone():
    rng = np.random.default_rng(11)
    params = random_mixture(rng, 3, 2, "full", separation=4.0)
    x = sample(rng, params, "full", 4000)
    joint = mixture.log_joint(params._replace(weights=np.ones(3)), x, "full")
    found = mixture.fit_weights(joint, np.full(3, 1 / 3))
    np.testing.assert_allclose(found, params.weights, atol=0.03)
    again = found
    for _ in range(3):  # a fixed point of EM with everything else frozen
        stats = mixture.e_step(params._replace(weights=again), x, np.ones(4000), "full")
        again = stats.n / 4000
    np.testing.assert_allclose(again, found, atol=1e-7)


def test_numpy_rows_never_import_torch():
    code = """import sys, numpy as np
from unpooled.maths import mixture
p = mixture.Params(np.ones(1), np.zeros((1, 2)), np.array([[1.0, 0.0, 1.0]]))
mixture.e_step(p, np.array([[0.0, np.nan], [1.0, 2.0]]), np.ones(2), "full")
assert "torch" not in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)
