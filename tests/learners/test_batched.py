"""Residual and depthwise networks of many models at once: the numbers of one model after the other."""

import numpy as np
import pytest
import torch
from torch import nn

from unpooled.learners import batched, modules, nets
from unpooled.learners.modules import Modules

INPUTS = 3 * 8 * 8


def problem(net, clients, k, b):
    rng = np.random.default_rng(1)
    theta = torch.tensor(np.stack([net.start(rng, k) for _ in range(clients)]))
    x = torch.tensor(rng.normal(size=(clients, b, INPUTS)), dtype=torch.float32)
    return theta, x, torch.tensor(rng.integers(3, size=(clients, b))), torch.rand(clients, b, k)


@pytest.mark.parametrize("name", ["resnet18_narrow", "mobilenet_v2"])
def test_scores_and_gradients_are_those_of_one_by_one(name, monkeypatch):
    net = Modules(getattr(nets, name), INPUTS, 3)
    case = problem(net, clients=3, k=2, b=2)
    alone = net.gradient(*case), net.logits(*case[:2]), net.logits(case[0][0], case[1])
    monkeypatch.setitem(modules.BACKENDS, "cpu", "batched")
    net.rows_at_once = 8  # two clients at a time: the last block has one
    together = net.gradient(*case), net.logits(*case[:2]), net.logits(case[0][0], case[1])
    for ours, theirs in zip(together, alone):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet18_narrow", "mobilenet_v2"])
def test_layers_as_they_are_compiled_have_the_same_scores_and_gradients(name):
    net = Modules(getattr(nets, name), INPUTS, 3)
    theta, x, _, _ = problem(net, clients=3, k=1, b=2)
    weights = [part.reshape(3, *s).requires_grad_() for (_, s), part in zip(net.layout, theta.split(net.sizes, -1))]
    module = net._template("cpu")
    plain, channels_last = batched.scores(module, weights, x), batched._channels_last_scores(module, tuple(weights), x)
    torch.testing.assert_close(channels_last, plain, rtol=1e-4, atol=1e-4)
    gradients = [torch.autograd.grad((a**2).sum(), weights) for a in (plain, channels_last)]
    for ours, theirs in zip(*gradients):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("clients", [1, 3, 4, 11])
def test_blocks_have_few_sizes_and_every_client_once(clients):
    seen = []

    def work(a, b):
        seen.append(len(a))
        return a + b

    a = torch.arange(clients)[:, None] * torch.ones(2)
    torch.testing.assert_close(batched.in_blocks(work, 6, a, 10 * a), 11 * a)
    assert set(seen) <= {1, 2, 4}


def test_memory_per_row_grows_with_the_network():
    sizes = [batched.bytes_per_row(make(INPUTS, 3), INPUTS) for make in (nets.resnet18_narrow, nets.resnet18)]
    assert 3.9 < sizes[1] / sizes[0] < 4


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(3, 4, 3, dilation=2), nn.Softmax(1)])
def test_other_layers_are_left_to_vmap(layer):
    assert not batched.supported(nn.Sequential(layer))
    assert batched.supported(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.GroupNorm(2, 4)))


def test_batch_statistics_are_not_batched():
    assert Modules(nets.resnet18_narrow, INPUTS, 3, norm="average").rows_at_once == 0
