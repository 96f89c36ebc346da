"""Gradients by hand against torch's autograd; NumPy against torch; many at once against one by one."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from unpooled.learners.dense import Dense

C, K, B, D, CLASSES = 4, 3, 11, 5, 3


def problem(hidden, seed=0):
    rng = np.random.default_rng(seed)
    net = Dense(D, CLASSES, hidden)
    theta = np.stack([net.start(rng, K) for _ in range(C)])
    return net, theta, rng.normal(size=(C, B, D)), rng.integers(CLASSES, size=(C, B)), rng.random((C, B, K))


def one_loss(net, flat, x, y, s):
    *hidden, last = net.layers(flat)
    for layer in hidden:
        x = F.relu(x @ layer[:, :-1].T + layer[:, -1])
    return (F.cross_entropy(x @ last[:, :-1].T + last[:, -1], y, reduction="none") * s).sum()


@pytest.mark.parametrize("hidden", [(), (7,), (6, 4)])
def test_gradient_is_autograds(hidden):
    net, theta, x, y, s = problem(hidden)
    ours = net.gradient(theta, x, y, s)
    for c, k in np.ndindex(C, K):
        flat = torch.tensor(theta[c, k], requires_grad=True)
        one_loss(net, flat, torch.tensor(x[c]), torch.tensor(y[c]), torch.tensor(s[c, :, k])).backward()
        np.testing.assert_allclose(ours[c, k], flat.grad, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (7,)])
def test_numpy_and_torch_agree(hidden):
    net, *arrays = problem(hidden)
    there = net.gradient(*(torch.as_tensor(a) for a in arrays))
    np.testing.assert_allclose(net.gradient(*arrays), there, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (7,)])
def test_one_client_alone_is_its_part_of_the_stack(hidden):
    net, theta, x, y, s = problem(hidden)
    np.testing.assert_allclose(net.gradient(theta[1], x[1], y[1], s[1]), net.gradient(theta, x, y, s)[1], atol=1e-13)
    np.testing.assert_allclose(net.logits(theta[1], x[1]), net.logits(theta, x)[1], atol=1e-13)
    np.testing.assert_allclose(net.logits(theta[0], x)[2], net.logits(theta[0], x[2]), atol=1e-13)
