"""Local epochs against torch.optim.SGD; alone against stacked; clients of different sizes."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from unpooled.client import Client
from unpooled.learners.rows import Rows
from unpooled.learners.sgd import Order, Step, minibatches, train
from unpooled.learners.trainer import IDLE, Trainer

SIZES = (40, 23, 7)


def make_clients(sizes=SIZES, d=4, seed=0):
    rng = np.random.default_rng(seed)
    clients = [Client(f"c{i}", rng.normal(size=(n, d)), rng.integers(3, size=n)) for i, n in enumerate(sizes)]
    return [c.at(5, 2) for c in clients]


def stacked(clients):
    width = max(len(c.w) for c in clients)
    pad = lambda a: np.concatenate([a, np.zeros((width - len(a), *a.shape[1:]), a.dtype)])  # noqa: E731
    x, y, w = (np.stack([pad(getattr(c, part)) for c in clients]) for part in "xyw")
    return Client("stack", x, y, w, moment=(5, 2), stacked=True, members=tuple(c.name for c in clients))


def trainer(**options):
    return Trainer("linear", 4, [0, 1, 2], lr=0.1, batch_size=8, **options)


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9, "weight_decay": 0.01, "epochs": 3}, {"prox": 0.5, "epochs": 2}]
)
def test_train_is_torchs_sgd_on_the_same_batches(options):
    (client,), how = make_clients((29,)), trainer(**options)
    theta, r = how.start(np.random.default_rng(1), 2), np.random.default_rng(2).random((29, 2))
    ours = how.train(theta, client, how.rows(client), r)
    order = minibatches(client.at(5, 2), how.epochs, how.batch_size)
    for k in range(2):
        begin = torch.tensor(theta[k].reshape(3, 5))
        flat = begin.clone().requires_grad_()
        sgd = torch.optim.SGD([flat], lr=0.1, momentum=how.momentum, weight_decay=how.weight_decay)
        for rows, real in zip(*order):
            chosen = rows[real]
            x, y = torch.tensor(client.x[chosen]), torch.tensor(client.y[chosen])
            loss = (
                F.cross_entropy(x @ flat[:, :-1].T + flat[:, -1], y, reduction="none") * torch.tensor(r[chosen, k])
            ).mean()
            loss = loss + how.prox / 2 * ((flat - begin) ** 2).sum()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        np.testing.assert_allclose(ours[k].reshape(3, 5), flat.detach(), atol=1e-12)


@pytest.mark.parametrize("learner", ["linear", "mlp"])
def test_a_stacked_client_takes_the_steps_it_takes_alone(learner):
    clients = make_clients()
    how = Trainer(
        learner, 4, [0, 1, 2], lr=0.1, batch_size=8, momentum=0.9, weight_decay=0.01, epochs=2, keep_momentum=True
    )
    theta, both = how.start(np.random.default_rng(1), 2), stacked(clients)
    ones = lambda c: np.ones((*c.w.shape, 2))  # noqa: E731
    together = how.train(theta, both, how.rows(both), ones(both))
    for i, c in enumerate(clients):
        np.testing.assert_allclose(how.train(theta, c, how.rows(c), ones(c)), together[i], atol=1e-12)
        np.testing.assert_allclose(c.state["velocity"], both.state["velocity"][i], atol=1e-12)


def test_every_row_once_an_epoch_in_an_order_of_its_own():
    for c in make_clients():
        order = minibatches(c, 2, 8)
        seen = order.rows[order.real]
        assert sorted(seen) == sorted([*range(len(c.w))] * 2)
    first, second = (minibatches(c.at(5, t), 1, 8).rows for t, c in ((1, make_clients()[0]), (2, make_clients()[0])))
    assert not np.array_equal(first, second)


def test_rows_of_weight_zero_are_never_drawn_and_weights_count():
    (c,) = make_clients((20,))
    c.w[5:] = 0
    order = minibatches(c, 1, 8)
    assert set(order.rows[order.real]) == set(range(5))
    how, theta = trainer(), trainer().start(np.random.default_rng(0), 1)
    twice = Client("c0", np.concatenate([c.x[:5], c.x[:1]]), np.concatenate([c.y[:5], c.y[:1]])).at(5, 2)
    c.w[0] = 2
    whole = Order(np.arange(6)[None], np.ones((1, 6), bool))
    five = Order(np.arange(5)[None], np.ones((1, 5), bool))
    a, _ = train(how.net, theta, how.rows(c), np.ones((20, 1)), five, Step(0.1))
    b, _ = train(how.net, theta, how.rows(twice), np.ones((6, 1)), whole, Step(0.1))
    np.testing.assert_allclose(a, b, atol=1e-12)


def test_responsibilities_decide_what_a_learner_sees():
    (c,) = make_clients((30,))
    how, theta = trainer(), trainer().start(np.random.default_rng(0), 2)
    r = np.stack([np.zeros(30), np.ones(30)], axis=1)
    after = how.train(theta, c, how.rows(c), r)
    np.testing.assert_array_equal(after[0], theta[0])
    assert np.abs(after[1] - theta[1]).max() > 1e-3


def test_a_torch_device_gives_the_same_as_numpy():
    (c,) = make_clients((30,))
    theta = trainer().start(np.random.default_rng(0), 2)
    here, there = trainer(), trainer(device="cpu")
    rows: Rows = there.rows(c)
    assert isinstance(rows.x, torch.Tensor)
    moved = there.train(theta, c.at(5, 2), rows, np.ones((30, 2)))
    np.testing.assert_allclose(here.train(theta, c.at(5, 2), here.rows(c), np.ones((30, 2))), moved, atol=1e-12)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_idle_learners_stay_and_the_others_take_their_steps(device):
    clients = make_clients()
    how = trainer(momentum=0.9, weight_decay=0.01, epochs=2, keep_momentum=True, device=device)
    theta, both, rng = how.start(np.random.default_rng(1), 3), stacked(clients), np.random.default_rng(3)
    r = rng.random((*both.w.shape, 3))
    r[0, :, 1] = r[2, :, :2] = 1e-7  # of the first client one learner is idle, of the last one two
    usual = how.train(theta, both, how.rows(both), r)
    fresh = stacked(clients)
    found = how.train(theta, fresh, how.rows(fresh), r, idle=IDLE)
    idle = np.array([[0, 1, 0], [0, 0, 0], [1, 1, 0]], bool)
    np.testing.assert_array_equal(np.asarray(found)[idle], np.broadcast_to(theta, found.shape)[idle])
    np.testing.assert_allclose(np.asarray(found)[~idle], np.asarray(usual)[~idle], atol=1e-12)
    assert (np.asarray(fresh.state["velocity"])[idle] == 0).all()
    for i, c in enumerate(clients):
        alone = how.train(theta, c, how.rows(c), r[i, : len(c.w)], idle=IDLE)
        np.testing.assert_allclose(alone, found[i], atol=1e-12)


def test_where_all_learners_are_idle_nothing_moves():
    (client,), how = make_clients((9,)), trainer()
    theta = how.start(np.random.default_rng(1), 2)
    np.testing.assert_array_equal(how.train(theta, client, how.rows(client), np.zeros((9, 2)), idle=IDLE), theta)
