"""Convolutions of many models at once as banded products: equal to torch's own, gradients too."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unpooled.learners import banded, modules, nets
from unpooled.learners.modules import Modules


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(
    ("stride", "pool"), [((1, 1), 1), ((2, 1), 1), ((2, 3), 1), ((1, 1), 2), ((1, 2), 3), ((1, 1), 3)]
)
@pytest.mark.parametrize("n", [5, 8])
def test_a_convolution_and_its_gradients_are_torchs(dtype, tolerance, stride, pool, n):
    torch.manual_seed(0)
    shapes = (3, 4, 9, 10, 2), (3, 3, 4, 2, n), (3, n)
    parts = [torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]
    ours = banded.convolution(*parts, stride, pool)
    wanted = torch.stack([reference(*one, stride, pool) for one in zip(*parts)])
    with torch.no_grad():
        torch.testing.assert_close(banded.convolution(*parts, stride, pool), ours, rtol=0, atol=0)
    torch.testing.assert_close(ours, wanted, rtol=tolerance, atol=tolerance)
    weight = torch.randn_like(wanted)
    gradients = (torch.autograd.grad((out * weight).mean(), parts) for out in (ours, wanted))
    for mine, theirs in zip(*gradients):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def reference(x, weight, bias, stride, pool):
    """Of one model: images (b, height, width, c), weight (high, wide, c, n)."""
    out = F.conv2d(x.movedim(-1, 1), weight.permute(3, 2, 0, 1), bias, stride)
    return F.max_pool2d(out, pool).movedim(1, -1)


def pixels(inputs, classes):
    """Two channels, a stride, overlapping pools, a first dense layer that nothing precedes but pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (2, 9, 9)),
        nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1)),
        nn.Flatten(1),
        nn.Linear(27, classes),
    )


def means(inputs, classes):
    """Mean pooling after a ReLU, as LeNet-5 has it."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AvgPool2d(2)),
        nn.Flatten(1),
        nn.Linear(27, classes),
    )


def dense(inputs, classes):
    return nn.Sequential(nn.Linear(inputs, 6), nn.ReLU(), nn.Linear(6, classes))


@pytest.mark.parametrize(
    ("make", "inputs"), [(nets.cnn, 256), (nets.cnn, 3 * 16 * 16), (pixels, 162), (means, 64), (dense, 12)]
)
@pytest.mark.parametrize("models", [1, 3])
def test_networks_score_and_learn_as_one_by_one(make, inputs, models, monkeypatch):
    net = Modules(make, inputs, 4)
    assert net.layers
    rng = np.random.default_rng(0)
    theta = torch.tensor(np.stack([net.start(rng, models) for _ in range(2)]))
    x = torch.tensor(rng.random((2, 5, inputs)), dtype=torch.float32)
    x[:, :, inputs // 2 :] = 0  # where images are blank many outputs are equal: pooling must choose as torch does
    y, s = torch.tensor(rng.integers(4, size=(2, 5))), torch.rand(2, 5, models)
    found = {}
    for way in ("one by one", "banded"):
        monkeypatch.setitem(modules.BACKENDS, "cpu", way)
        found[way] = net.gradient(theta, x, y, s), net.logits(theta, x), net.logits(theta[0], x)
    for ours, wanted in zip(found["banded"], found["one by one"]):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


def test_scores_and_gradients_are_the_same_in_small_portions(monkeypatch):
    monkeypatch.setitem(modules.BACKENDS, "cpu", "banded")
    net = Modules(dense, 12, 4)
    theta = torch.tensor(np.stack([net.start(np.random.default_rng(i), 2) for i in range(5)]))
    x, y, s = torch.rand(5, 7, 12), torch.randint(4, (5, 7)), torch.rand(5, 7, 2)
    ways = lambda: (net.logits(theta, x), net.logits(theta[0], x), net.gradient(theta, x, y, s))  # noqa: E731
    whole = ways()
    monkeypatch.setitem(modules.ROWS_AT_ONCE, "cpu", 30)  # two clients' rows
    for part, all_ in zip(ways(), whole):
        torch.testing.assert_close(part, all_)


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(1, 2, 3, bias=False), nn.Conv2d(1, 2, 3, dilation=2), nn.GELU()],
    ids=str,
)
def test_other_networks_are_left_to_vmap(layer, monkeypatch):
    make = lambda inputs, classes: nn.Sequential(nn.Unflatten(1, (1, 6, 6)), layer, nn.Flatten(1), nn.LazyLinear(3))  # noqa: E731
    module = make(36, 3)
    module(torch.zeros(1, 36))
    assert banded.plain(module, 36) is None
    assert Modules(nets.resnet18, 192, 3).layers is None


def test_wide_images_are_left_to_vmap():
    wide = lambda inputs, classes: nn.Sequential(  # noqa: E731
        nn.Unflatten(1, (1, 64, 64)), nn.Conv2d(1, 32, 5), nn.Flatten(1), nn.Linear(32 * 3600, classes)
    )
    assert banded.plain(wide(4096, 3), 4096) is None


def test_where_nothing_fits_vmap_takes_the_step(monkeypatch):
    monkeypatch.setitem(modules.BACKENDS, "cpu", "banded")
    bent = lambda inputs, classes: nn.Sequential(nn.Linear(inputs, 8), nn.GELU(), nn.Linear(8, classes))  # noqa: E731
    assert Modules(bent, 12, 3)._backend(torch.zeros(1)) == "vmap"
    assert Modules(nets.mobilenet_v2, 3 * 8 * 8, 3)._backend(torch.zeros(1)) == "batched"
    assert Modules(dense, 12, 4)._backend(torch.zeros(1)) == "banded"
