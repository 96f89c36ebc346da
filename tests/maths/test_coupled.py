"""Rows with weights of their own: one pass equals two, and both equal the mixture's E-step where weights are common. Rows kept as
columns between passes change nothing but the time.
"""

import numpy as np
import pytest
from scipy.special import logsumexp

from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.models.fedgmm import row_cache as standing
from unpooled.models.fedgmm import weighted_e_step as coupled
from unpooled.models.fedgmm.row_cache import standing as stand

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


# ---- rows kept as columns ----


def kept(x, w):
    memo: dict = {}
    found = stand(memo, x, w)
    assert stand(memo, x, w) is found is not None
    return found


@SHAPES
@pytest.mark.parametrize("away", [0.0, 1e6])
def test_the_e_step_is_the_same_wherever_rows_lie_and_whatever_padding_holds(shape, away):
    params, x, w, log_rows, _ = problem(shape, n=700)  # long enough to be read in pieces
    params, x = params._replace(means=params.means + away), x + away
    x[1, -300:], w[1, -300:] = 0, 0
    real = coupled.e_step(params, x[1:, :400], w[1:, :400], log_rows[1:, :, :400], shape).stats
    ours = coupled.e_step(params, x, w, log_rows, shape, kept(x, w))
    for got, wanted in zip(ours.stats, real, strict=True):
        np.testing.assert_allclose(got[1:], wanted, rtol=1e-7, atol=1e-6 if away else 1e-9)
    if not away:
        assert_close(ours, coupled.e_step(params, x, w, log_rows, shape))


def test_in_float32_far_rows_keep_their_digits():
    params, x, w, log_rows, _ = problem("full")
    far = (x + 1e3).astype(np.float32)
    moved = params._replace(means=params.means + 1e3)
    ours = coupled.e_step(moved, far, w, log_rows, "full", kept(far, w)).stats
    wanted = coupled.e_step(moved, far.astype(np.float64), w, log_rows, "full").stats
    np.testing.assert_allclose(ours.xx, wanted.xx, rtol=1e-3, atol=1e-3)


def test_other_rows_are_turned_again():
    _, x, w, _, _ = problem("full")
    memo: dict = {}
    first = stand(memo, x, w)
    np.testing.assert_allclose(stand(memo, 2 * x, w).centre, 2 * first.centre)


@pytest.mark.parametrize("why", ["tensor", "missing", "large"])
def test_what_cannot_be_kept(why, monkeypatch):
    _, x, w, _, _ = problem("full")
    if why == "tensor":
        x = pytest.importorskip("torch").tensor(x)
    elif why == "missing":
        x[0, 0, 0] = np.nan
    else:
        monkeypatch.setattr(standing, "LARGEST", x.size - 1)
    memo: dict = {}
    assert stand(memo, x, w) is None
    assert stand(memo, x, w) is None  # nor the second time
