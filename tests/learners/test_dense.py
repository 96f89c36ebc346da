"""Gradients by hand against torch's autograd; NumPy against torch; many at once against one by one."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from unpooled.learners import Rows, Trainer
from unpooled.learners.dense import Dense, Logistic

C, K, B, D = 4, 3, 11, 5
NETS = {
    "linear": Dense(D, 3),
    "one layer": Dense(D, 3, (7,)),
    "two layers": Dense(D, 3, (6, 4)),
    "two classes": Logistic(D),
}


def problem(name, seed=0):
    rng, net = np.random.default_rng(seed), NETS[name]
    theta, classes = np.stack([net.start(rng, K) for _ in range(C)]), net.shapes[-1][0]
    return net, theta, rng.normal(size=(C, B, D)), rng.integers(classes, size=(C, B)), rng.random((C, B, K))


def one_loss(net, flat, x, y, s):
    *hidden, last = net.layers(flat)
    for layer in hidden:
        x = F.relu(x @ layer[:, :-1].T + layer[:, -1])
    return (F.cross_entropy(x @ last[:, :-1].T + last[:, -1], y, reduction="none") * s).sum()


@pytest.mark.parametrize("name", NETS)
def test_gradient_is_autograds(name):
    net, theta, x, y, s = problem(name)
    ours = net.gradient(theta, x, y, s)
    for c, k in np.ndindex(C, K):
        flat = torch.tensor(theta[c, k], requires_grad=True)
        one_loss(net, flat, torch.tensor(x[c]), torch.tensor(y[c]), torch.tensor(s[c, :, k])).backward()
        np.testing.assert_allclose(ours[c, k], flat.grad, atol=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_numpy_and_torch_agree(name):
    net, *arrays = problem(name)
    there = net.gradient(*(torch.as_tensor(a) for a in arrays))
    np.testing.assert_allclose(net.gradient(*arrays), there, atol=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_one_client_alone_is_its_part_of_the_stack(name):
    net, theta, x, y, s = problem(name)
    np.testing.assert_allclose(net.gradient(theta[1], x[1], y[1], s[1]), net.gradient(theta, x, y, s)[1], atol=1e-13)
    np.testing.assert_allclose(net.logits(theta[1], x[1]), net.logits(theta, x)[1], atol=1e-13)
    np.testing.assert_allclose(net.logits(theta[0], x)[2], net.logits(theta[0], x[2]), atol=1e-13)


@pytest.mark.parametrize("far", [1.0, 1e4])
@pytest.mark.parametrize(("classes", "code"), [(2, np.int64), (2, np.uint8), (3, np.int64)])
def test_log_likelihood_is_minus_the_cross_entropy(classes, code, far):
    how, rng = Trainer("linear", D, list(range(classes))), np.random.default_rng(0)
    theta, x, y = far * how.start(rng, K), rng.normal(size=(B, D)), rng.integers(classes, size=B)
    ours = how.log_likelihood(theta, Rows(x, y.astype(code), np.ones(B)))
    for k in range(K):
        flat = torch.tensor(theta[k]).reshape(classes, -1)
        loss = F.cross_entropy(torch.tensor(x) @ flat[:, :-1].T + flat[:, -1], torch.tensor(y), reduction="none")
        np.testing.assert_allclose(ours[:, k], -loss, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours, how.log_proba(theta, x)[:, y, np.arange(B)].T, rtol=1e-10, atol=1e-12)


def test_two_classes_far_apart_have_a_gradient_without_overflow():
    net, theta, x, y, s = problem("two classes")
    wide = [a.astype(np.float32) for a in (1e4 * theta, x)]
    plain = Dense(D, 2).gradient(*wide, y, s.astype(np.float32))
    np.testing.assert_allclose(net.gradient(*wide, y, s.astype(np.float32)), plain, rtol=1e-4, atol=1e-5)
