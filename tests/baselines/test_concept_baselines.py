"""IFCA, FeSEM, FedSoft and APFL: a round of each against its update written out in torch, client by client."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from unpooled.baselines.apfl import APFL
from unpooled.baselines.fedsoft import FedSoft
from unpooled.baselines.fesem import FeSEM
from unpooled.baselines.ifca import IFCA
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.errors import BadParameter
from unpooled.learners.sgd import minibatches

CLASSES, D, LR, BATCH, MOMENTUM = 3, 4, 0.2, 8, 0.5
SETTINGS = {"lr": LR, "batch_size": BATCH, "momentum": MOMENTUM, "random_state": 0}


def data(clients=5):
    rng = np.random.default_rng(0)
    made = {}
    for i in range(clients):
        y = rng.integers(CLASSES, size=20 + 3 * i)
        x = np.eye(CLASSES, D)[y] * 2 + rng.normal(size=(len(y), D))
        made[f"c{i}"] = (x, (y + i % 2) % CLASSES)  # every second client has another concept
    return made


def loss(flat, x, y):
    w = flat.reshape(CLASSES, D + 1)
    return F.cross_entropy(torch.as_tensor(x) @ w[:, :-1].T + w[:, -1], torch.as_tensor(y))


def gradient(flat, x, y):
    flat = flat.clone().requires_grad_()
    loss(flat, x, y).backward()
    return flat.grad


def batches_of(name, x, y, moment):
    """The rows of each minibatch, in the order that the client draws."""
    order = minibatches(Client(name, x, y).at(*moment), 1, BATCH)
    return [rows[real] for rows, real in zip(order.rows, order.real)]


def epoch(theta, name, x, y, moment, prox=0.0):
    theta, v = theta.clone(), torch.zeros_like(theta)
    began = theta.clone()
    for rows in batches_of(name, x, y, moment):
        v = MOMENTUM * v + gradient(theta, x[rows], y[rows]) + prox * (theta - began)
        theta = theta - LR * v
    return theta


def run(model, clients, rounds=3):
    """(states before each round and after the last, the moment (seed, exchange) of each round)."""
    fed = federate(clients)
    model.max_iter = rounds
    moments = list(model.rounds(fed))
    return [m.state for m in moments], [(m.seed, m.round) for m in moments[1:]], model


def weighted(models, weights, before):
    """(k, p) averages of models by weights (clients, k)."""
    weights = torch.as_tensor(np.array(weights))
    total = torch.einsum("ck,cp->kp", weights, torch.stack(models))
    heavy = weights.sum(0)[:, None]
    return torch.where(heavy > 0, total / heavy.clamp(min=1e-12), before)


def test_ifca_trains_the_model_of_least_loss():
    clients = data()
    states, moments, model = run(IFCA(3, **SETTINGS), clients)
    for before, after, moment in zip(states, states[1:], moments):
        theta, models, weights = torch.as_tensor(np.array(before.theta)), [], []
        for name, (x, y) in clients.items():
            best = int(np.argmin([float(loss(t, x, y)) for t in theta]))
            models.append(epoch(theta[best], name, x, y, moment))
            weights.append(len(y) * np.eye(3)[best])
        np.testing.assert_allclose(after.theta, weighted(models, weights, theta), rtol=1e-9)
    assert model.concepts_ == {name: int(np.argmax(w)) for name, w in zip(clients, weights)}
    new = model.adapt(*clients["c0"])
    losses = [float(loss(torch.as_tensor(t), *clients["c0"])) for t in model.theta_]
    assert new.own_["cluster"].argmax() == np.argmin(losses)


def test_fesem_joins_the_nearest_centre():
    clients = data()
    states, moments, _ = run(FeSEM(2, **SETTINGS), clients, rounds=4)
    own = {}
    for before, after, moment in zip(states, states[1:], moments):
        theta, models, weights = torch.as_tensor(np.array(before.theta)), [], []
        for name, (x, y) in clients.items():
            client = Client(name, x, y).at(*moment)
            if name in own:
                best, start = int(((own[name] - theta) ** 2).sum(1).argmin()), moment
                own[name] = epoch(theta[best], name, x, y, start)
            else:
                best = int(client.rng.integers(2))
                own[name] = first_epoch(theta[best], client, x, y)
            models.append(own[name])
            weights.append(len(y) * np.eye(2)[best])
        np.testing.assert_allclose(after.theta, weighted(models, weights, theta), rtol=1e-9)


def first_epoch(theta, client, x, y):
    """An epoch whose order is drawn after the client's first centre was."""
    order = minibatches(client, 1, BATCH)
    v = torch.zeros_like(theta)
    for rows, real in zip(order.rows, order.real):
        v = MOMENTUM * v + gradient(theta, x[rows[real]], y[rows[real]])
        theta = theta - LR * v
    return theta


def test_fedsoft_pulls_to_the_mixture_of_centres():
    clients = data()
    states, moments, model = run(FedSoft(3, mu=0.3, least=0.01, **SETTINGS), clients)
    for before, after, moment in zip(states, states[1:], moments):
        theta, models, weights = torch.as_tensor(np.array(before.theta)), [], []
        for name, (x, y) in clients.items():
            losses = np.array([[float(loss(t, x[i : i + 1], y[i : i + 1])) for t in theta] for i in range(len(y))])
            u = np.maximum(np.bincount(losses.argmin(1), minlength=3) / len(y), 0.01)
            u = u / u.sum()
            models.append(epoch(torch.as_tensor(u) @ theta, name, x, y, moment, prox=0.3))
            weights.append(len(y) * u)
        np.testing.assert_allclose(after.theta, weighted(models, weights, theta), rtol=1e-9)
    np.testing.assert_allclose(model.clients_["c1"]["model"][0], models[1], rtol=1e-9)
    np.testing.assert_allclose(model.adapt(*clients["c1"]).own_["cluster"].sum(), 1)


@pytest.mark.parametrize("adaptive", [True, False])
def test_apfl_moves_own_and_shared_model_together(adaptive):
    clients = data()
    states, moments, model = run(APFL(alpha=0.4, adaptive=adaptive, **SETTINGS), clients)
    own = {name: torch.as_tensor(np.array(states[0].theta))[0] for name in clients}
    alpha = dict.fromkeys(clients, 0.4)
    for before, after, moment in zip(states, states[1:], moments):
        theta, models = torch.as_tensor(np.array(before.theta)), []
        for name, (x, y) in clients.items():
            shared, v, a = theta[0], own[name], alpha[name]
            shared_speed, speed = torch.zeros_like(shared), torch.zeros_like(shared)
            for rows in batches_of(name, x, y, moment):
                g = gradient(a * v + (1 - a) * shared, x[rows], y[rows])
                slope = float((v - shared) @ g)
                shared_speed = MOMENTUM * shared_speed + gradient(shared, x[rows], y[rows])
                speed = MOMENTUM * speed + a * g
                shared, v = shared - LR * shared_speed, v - LR * speed
                a = min(max(a - LR * slope, 0.0), 1.0) if adaptive else a
            own[name], alpha[name] = v, a
            models.append(shared)
        weights = [[len(y)] for _, y in clients.values()]
        np.testing.assert_allclose(after.theta, weighted(models, np.array(weights, float), theta), rtol=1e-9)
    for name in clients:
        mixed = alpha[name] * own[name] + (1 - alpha[name]) * torch.as_tensor(model.theta_[0])
        np.testing.assert_allclose(model.models(name)[0][0], mixed, rtol=1e-8)


@pytest.mark.parametrize("make", [IFCA, FeSEM, FedSoft, APFL])
def test_together_and_one_by_one_are_the_same(make):
    models = [make(max_iter=3, **SETTINGS).fit(federate(data(), mode=mode)) for mode in ("one by one", "stacked")]
    np.testing.assert_allclose(models[0].theta_, models[1].theta_, rtol=1e-9)
    x, y = data()["c1"]
    assert all((m.predict(x, client="c1") == y).mean() > 0.4 for m in models)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (IFCA(0), "n_clusters=0 must be at least 1"),
        (FedSoft(2, mu=-1.0), "mu=-1.0 should be 0 or more"),
        (APFL(alpha=2.0), "alpha=2.0 should be between 0 and 1"),
    ],
)
def test_parameters_that_cannot_work_are_one_sentence(model, message):
    with pytest.raises(BadParameter, match=message):
        model.fit(data())
