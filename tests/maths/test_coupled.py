"""Rows with weights of their own: one pass equals two, and both equal the mixture's E-step where weights are common."""

import numpy as np
import pytest
from scipy.special import logsumexp

from unpooled.maths import coupled, gaussian, mixture
from unpooled.maths.mixture import Params

SHAPES = pytest.mark.parametrize("shape", ["full", "tied", "diag", "spherical"])


def problem(shape, k=3, d=4, n=50, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(k, d, d))
    covs = root @ root.swapaxes(1, 2) / d + np.eye(d)
    packed = gaussian.pack_covs(gaussian.reshape_covs(covs, shape), shape)
    params = Params(rng.dirichlet(np.ones(k)), rng.normal(size=(k, d)), packed)
    return params, rng.normal(size=(2, n, d)), rng.random((2, n)), rng.normal(size=(2, k, n)), rng


def assert_close(a, b):
    for x, y in zip((*a[0], *a[1:]), (*b[0], *b[1:]), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-9)


@SHAPES
def test_common_weights_give_the_mixtures_own_e_step(shape):
    params, x, w, _, _ = problem(shape)
    log_rows = np.broadcast_to(np.log(params.weights)[:, None], (2, 3, 50))
    found = coupled.e_step(params, x, w, log_rows, shape)
    for ours, wanted in zip(found.stats, mixture.e_step(params, x, w, shape), strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-9)


@SHAPES
def test_one_pass_equals_two(shape):
    params, x, w, log_rows, _ = problem(shape)
    assert_close(coupled.e_step(params, x, w, log_rows, shape), coupled._in_two_passes(params, x, w, log_rows, shape))


@SHAPES
def test_torch_equals_numpy(shape):
    torch = pytest.importorskip("torch")
    params, x, w, log_rows, _ = problem(shape)
    there = coupled.e_step(params, *(torch.tensor(a) for a in (x, w, log_rows)), shape)
    assert_close(coupled.e_step(params, x, w, log_rows, shape), there)


@SHAPES
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_moments_under_a_mixtures_own_responsibilities_are_its_e_step(shape, missing):
    params, x, w, _, rng = problem(shape)
    x[rng.random(x.shape) < missing] = np.nan
    joint = mixture.log_joint(params, x, shape)
    r = np.exp(joint - logsumexp(joint, -1, keepdims=True)) * w[..., None]
    wanted, ours = mixture.e_step(params, x, w, shape), coupled.moments(params, x, r, shape)
    for name in ("n", "x", "xx"):
        np.testing.assert_allclose(getattr(ours, name), getattr(wanted, name), atol=1e-9)
