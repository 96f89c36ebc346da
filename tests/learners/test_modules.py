"""Any torch module as a learner: flat parameters, one by one and all at once, and what becomes of BatchNorm."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional as F

from unpooled.errors import BadParameter
from unpooled.learners import modules, nets, registry
from unpooled.learners.modules import Modules


def small(inputs, classes):
    return nn.Sequential(
        nn.Unflatten(1, (1, 6, 6)),
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(1),
        nn.Linear(64, classes),
    )


def problem(net, clients=2, k=2, b=5, inputs=36, classes=3):
    rng = np.random.default_rng(0)
    theta = torch.tensor(np.stack([net.start(rng, k) for _ in range(clients)]))
    x = torch.tensor(rng.normal(size=(clients, b, inputs)), dtype=torch.float32)
    return theta, x, torch.tensor(rng.integers(classes, size=(clients, b))), torch.rand(clients, b, k)


def test_gradient_is_that_of_the_module_itself():
    net = Modules(small, 36, 3)
    theta, x, y, s = problem(net)
    ours = net.gradient(theta, x, y, s)
    module = net._built()
    nn.utils.vector_to_parameters(theta[1, 0], module.parameters())
    (F.cross_entropy(module(x[1]), y[1], reduction="none") * s[1, :, 0]).sum().backward()
    wanted = nn.utils.parameters_to_vector([p.grad for p in module.parameters()])
    torch.testing.assert_close(ours[1, 0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cnn", "resnet18", "mobilenet_v2"])
def test_all_at_once_equals_one_by_one(name):
    inputs = 256 if name == "cnn" else 3 * 8 * 8
    net = Modules(getattr(nets, name), inputs, 3)
    theta, x, y, s = problem(net, inputs=inputs, clients=1, b=3)
    together = vmap(vmap(grad(net._loss), in_dims=(0, None, None, 1)))(theta, x, y, s)
    torch.testing.assert_close(net.gradient(theta, x, y, s), together, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("way", ["vmap", "one by one"])
def test_a_thread_may_begin_with_a_gradient(way, monkeypatch):
    monkeypatch.setitem(modules.BACKENDS, "cpu", way)
    net = Modules(small, 36, 3)
    case = problem(net)
    with ThreadPoolExecutor(1) as pool:
        torch.testing.assert_close(pool.submit(net.gradient, *case).result(), net.gradient(*case))


@pytest.mark.parametrize(
    ("name", "inputs", "size"), [("resnet18", 3072, 11_173_962), ("mobilenet_v2", 3072, 2_236_682)]
)
def test_the_large_nets_have_their_known_sizes(name, inputs, size):
    assert sum(p.numel() for p in getattr(nets, name)(inputs, 10).parameters()) == size


def test_scores_are_the_same_for_shared_and_own_models():
    net = Modules(small, 36, 3)
    theta, x, *_ = problem(net)
    shared = net.logits(theta[0], x)
    assert shared.shape == (2, 2, 3, 5)
    own = net.logits(theta[:1].expand(2, -1, -1), x)
    torch.testing.assert_close(shared, own)


def test_running_statistics_are_parameters_and_move_as_batch_norm_moves_them():
    net = Modules(small, 36, 3, norm="average")
    assert net.size - net.trained == 2 * 4
    theta, x, y, s = problem(net)
    s[0, 3:] = 0  # padding: must not enter the batch statistics
    before = theta.clone()
    g = net.gradient(theta, x, y, s)
    assert (g[..., net.trained :] == 0).all()
    batch = F.conv2d(x[0, :3].view(3, 1, 6, 6), *_first_conv(net, before[0, 0])).transpose(0, 1).flatten(1)
    wanted = 0.9 * before[0, 0, net.trained :] + 0.1 * torch.cat([batch.mean(1), batch.var(1)])
    torch.testing.assert_close(theta[0, 0, net.trained :], wanted, rtol=1e-4, atol=1e-5)


def _first_conv(net, flat):
    named = net._named(flat)
    return named["1.weight"], named["1.bias"]


def test_local_norm_marks_all_that_belongs_to_it():
    assert len(Modules(small, 36, 3, norm="local").local) == 4 * 4
    assert Modules(small, 36, 3, norm="average").local == ()
    assert Modules(small, 36, 3).trained == Modules(small, 36, 3).size


def test_what_does_not_fit_is_refused_in_a_sentence():
    with pytest.raises(BadParameter, match=r"gives \(2,\) outputs per row, but there are 3 classes"):
        Modules(lambda inputs, classes: nn.Linear(inputs, 2), 4, 3)
    with pytest.raises(BadParameter, match="cannot take rows of 4 numbers"):
        Modules(lambda inputs, classes: nn.Linear(9, classes), 4, 3)
    with pytest.raises(BadParameter, match="dropout"):
        Modules(lambda inputs, classes: nn.Sequential(nn.Dropout(), nn.Linear(inputs, classes)), 4, 3)
    with pytest.raises(BadParameter, match="are not square images"):
        nets.image_shape(10)
    with pytest.raises(BadParameter, match="should be a name or a function"):
        registry.name_of(nn.Linear(4, 3))


def test_a_partial_of_a_factory_is_a_factory():
    def wide(inputs, classes, hidden):
        return nn.Sequential(nn.Linear(inputs, hidden), nn.Linear(hidden, classes))

    name = registry.name_of(partial(wide, hidden=5))
    assert registry.learner(name, 4, 3).size == 5 * 5 + 3 * 6
