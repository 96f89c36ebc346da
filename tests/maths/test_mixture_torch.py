"""The same functions on torch tensors: torch out, equal to NumPy; the chunks of a GPU too, rehearsed on the CPU."""

import numpy as np
import pytest
from mixtures import SHAPES, close, random_mixture, rows_with_holes

torch = pytest.importorskip("torch")

from unpooled.maths import kernel, missing, mixture  # noqa: E402
from unpooled.maths.mixture import Params  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def as_torch(params, device):
    return Params(*(torch.asarray(a, device=device) for a in params))


def numpy(t):
    return tuple(a.cpu().numpy() for a in t)


@pytest.fixture(params=[False, True], ids=["chunks", "segments"])
def gpu_chunks(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(kernel, "_on_gpu", lambda a: isinstance(a, torch.Tensor))
        monkeypatch.setattr(kernel, "SEGMENT", 64)
        monkeypatch.setattr(kernel, "ON_DEVICE", 5000)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("holes", [0.0, 0.2])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_numpy(shape, holes, device, gpu_chunks):
    rng = np.random.default_rng(1)
    params = random_mixture(rng, 3, 5, shape)
    x, w = rows_with_holes(rng, 3 * 700, 5, holes).reshape(3, 700, 5), rng.uniform(0, 1, (3, 700))
    w[w < 0.1] = 0
    log_weights = np.log(rng.dirichlet(np.ones(3), 3))
    tensors = [torch.asarray(a, device=device) for a in (x, w)]
    ours = mixture.e_step(as_torch(params, device), *tensors, shape, torch.asarray(log_weights, device=device))
    assert all(isinstance(a, torch.Tensor) and a.device.type == device and a.dtype == torch.float64 for a in ours)
    stats = mixture.e_step(params, x, w, shape, log_weights)
    close(numpy(ours), stats, 1e-10)
    total, total_torch = (type(stats)(*(a.sum(0) for a in s)) for s in (stats, ours))
    moved = mixture.m_step(as_torch(params, device), total_torch, shape, 1e-6)
    close(numpy(moved), mixture.m_step(params, total, shape, 1e-6), 1e-10)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_densities_and_imputation(shape, device, gpu_chunks):
    rng = np.random.default_rng(2)
    params = random_mixture(rng, 3, 5, shape)
    x = rows_with_holes(rng, 300, 5, 0.1)
    p, t = as_torch(params, device), torch.asarray(x, device=device)
    for f in (mixture.log_joint, mixture.log_density, missing.impute):
        close([f(p, t, shape).cpu().numpy()], [f(params, x, shape)], 1e-10)
    close(numpy(missing.conditional_moments(p, t, shape)), missing.conditional_moments(params, x, shape), 1e-10)


@pytest.mark.parametrize("device", DEVICES)
def test_one_client_in_segments(device, gpu_chunks):
    """One long client, as a GPU gets it; float32 rows under NumPy parameters."""
    rng = np.random.default_rng(3)
    params = random_mixture(rng, 3, 5, "full")
    x = rng.normal(size=(1000, 5)).astype(np.float32)
    ours = mixture.e_step(params, torch.asarray(x, device=device), torch.ones(1000, device=device), "full")
    close(numpy(ours), mixture.e_step(params, x.astype(float), np.ones(1000), "full"), 2e-5)


def test_the_weights_that_fit():
    joint = np.log(np.random.default_rng(4).dirichlet(np.ones(3), 200))
    ours = mixture.fit_weights(torch.asarray(joint), torch.full((3,), 1 / 3, dtype=torch.float64))
    close([ours.numpy()], [mixture.fit_weights(joint, np.full(3, 1 / 3))], 1e-10)
