"""Each baseline against plain torch, a special case of another, or a direct transcription of its paper's update."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch.nn import functional as F

from unpooled.baselines import ClusteredFL, FedAvg, FedAvgPlus, FedEM, FedProx, LocalOnly, PFedMe
from unpooled.baselines.clustered import bipartition, disagrees
from unpooled.client import Client
from unpooled.data.federate import federate
from unpooled.errors import BadData, BadParameter
from unpooled.learners.sgd import minibatches
from unpooled.local import Local

D, CLASSES = 4, 3


def data(clients=4, n=30, seed=0, concepts=1):
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(concepts, CLASSES, D))
    x = {f"c{i}": rng.normal(size=(n + 3 * i, D)) for i in range(clients)}
    return {name: (rows, (rows @ v[i % concepts].T).argmax(-1)) for i, (name, rows) in enumerate(x.items())}


SMALL = {"lr": 0.1, "batch_size": 8, "momentum": 0.9, "max_iter": 3, "random_state": 0}


def scores(flat, x):
    return x @ flat[:, :-1].T + flat[:, -1]


def started(estimator, fed):
    """(theta before the first round, the round in which clients first train)."""
    moment = next(estimator.rounds(fed))
    return torch.tensor(moment.state.theta[0].reshape(CLASSES, D + 1)), moment.round + 1


def test_fedavg_of_one_client_is_plain_sgd():
    rows = data(1)
    theta, first = started(FedAvg(**SMALL), federate(rows))
    flat = theta.clone().requires_grad_()
    (x, y), client = rows["c0"], Client("c0", *rows["c0"])
    for t in range(3):
        sgd = torch.optim.SGD([flat], lr=0.1, momentum=0.9)
        for chosen, real in zip(*minibatches(client.at(0, first + t), 1, 8)):
            sgd.zero_grad()
            F.cross_entropy(scores(flat, torch.tensor(x[chosen[real]])), torch.tensor(y[chosen[real]])).backward()
            sgd.step()
    np.testing.assert_allclose(FedAvg(**SMALL).fit(rows).theta_[0], flat.detach().ravel(), atol=1e-10)


def test_fedavg_averages_models_by_rows():
    rows = data(3)
    shared = FedAvg(**SMALL | {"max_iter": 1}).fit(rows)
    alone = LocalOnly(**SMALL | {"max_iter": 1}).fit(rows)
    n = np.array([len(y) for _, y in rows.values()])
    models = np.stack([alone.clients_[name]["theta"][0] for name in rows])
    np.testing.assert_allclose(shared.theta_[0], n @ models / n.sum(), atol=1e-10)


def test_fedprox_without_a_pull_is_fedavg_and_with_a_strong_one_stays():
    rows = data()
    plain = FedAvg(**SMALL).fit(rows)
    np.testing.assert_array_equal(FedProx(mu=0.0, **SMALL).fit(rows).theta_, plain.theta_)
    began, _ = started(FedAvg(**SMALL), federate(rows))
    move = lambda m: np.linalg.norm(m.theta_.ravel() - began.numpy().ravel())  # noqa: E731
    assert move(FedProx(mu=5.0, **SMALL | {"momentum": 0.0}).fit(rows)) < 0.7 * move(
        FedAvg(**SMALL | {"momentum": 0.0}).fit(rows)
    )


def test_fedem_of_one_learner_is_fedavg():
    rows = data()
    np.testing.assert_allclose(FedEM(1, **SMALL).fit(rows).theta_, FedAvg(**SMALL).fit(rows).theta_, atol=1e-12)


@pytest.mark.parametrize("weighting", ["mass", "clients"])
def test_a_round_of_fedem_is_its_papers_update(weighting):
    rows = data()
    options = SMALL | {"batch_size": 10**6, "momentum": 0.0, "max_iter": 1}
    fitted = FedEM(2, weighting=weighting, **options).fit(rows)
    moment = next(FedEM(2, **options).rounds(federate(rows)))
    theta = torch.tensor(moment.state.theta.reshape(2, CLASSES, D + 1))
    total, weights = torch.zeros_like(theta), torch.zeros(2, dtype=torch.float64)
    for x, y in rows.values():
        x, y = torch.tensor(x), torch.tensor(y)
        loss = torch.stack([F.cross_entropy(scores(t, x), y, reduction="none") for t in theta], -1)
        q = torch.softmax(np.log(0.5) - loss, -1)
        for k in range(2):
            flat = theta[k].clone().requires_grad_()
            (q[:, k] * F.cross_entropy(scores(flat, x), y, reduction="none")).mean().backward()
            gamma = q[:, k].sum() if weighting == "mass" else len(y)
            total[k] += gamma * (flat.detach() - 0.1 * flat.grad)
            weights[k] += gamma
    np.testing.assert_allclose(fitted.theta_, (total / weights[:, None, None]).reshape(2, -1), atol=1e-10)
    np.testing.assert_allclose(fitted.clients_["c3"]["pi"], q.mean(0), atol=1e-10)


def test_fedem_tells_two_concepts_apart_and_adapts_a_new_client():
    rows = data(8, n=200, concepts=2)
    model = FedEM(2, **SMALL | {"max_iter": 60, "batch_size": 32}).fit(rows)
    x, y = rows.pop("c7")
    new = model.adapt(x[:100], y[:100])
    assert new.own_["pi"].max() > 0.9
    assert abs(new.score(x[100:], y[100:]) - model.personal_["c7"].score(x[100:], y[100:])) < 0.03
    assert model.personal_["c7"].score(x, y) > model.score(x, y) + 0.1


def test_fedavg_plus_is_fedavg_and_one_more_local_epoch():
    rows = data()
    tuned, plain = FedAvgPlus(**SMALL).fit(rows), FedAvg(**SMALL).fit(rows)
    np.testing.assert_array_equal(tuned.theta_, plain.theta_)
    alone = tuned.clients_["c2"]["theta"]
    assert np.abs(alone - plain.theta_).max() > 1e-3
    assert tuned.score(*rows["c2"]) == plain.score(*rows["c2"])
    x, y = rows["c2"]
    np.testing.assert_array_equal(tuned.predict(x, client="c2"), tuned.personal_["c2"].predict(x))
    assert np.abs(tuned.adapt(x, y).own_["theta"] - plain.theta_).max() > 1e-3


def test_pfedme_is_its_papers_algorithm():
    """Algorithm 1 of T Dinh et al., written out for each client."""
    rows = data()
    options = {"lam": 2.0, "eta": 0.05, "inner_steps": 3, "beta": 0.7}
    fitted = PFedMe(**options, **SMALL).fit(rows)
    w, first = started(PFedMe(**options, **SMALL), federate(rows))
    for t in range(3):
        locals_ = []
        for name, (x, y) in rows.items():
            w_i, theta = w.clone(), w.clone()
            for chosen, real in zip(*minibatches(Client(name, x, y).at(0, first + t), 1, 8)):
                x_b, y_b = torch.tensor(x[chosen[real]]), torch.tensor(y[chosen[real]])
                for _ in range(3):
                    flat = theta.clone().requires_grad_()
                    loss = F.cross_entropy(scores(flat, x_b), y_b) + 2.0 / 2 * ((flat - w_i) ** 2).sum()
                    loss.backward()
                    theta = theta - 0.1 * flat.grad
                w_i = w_i - 0.05 * 2.0 * (w_i - theta)
            locals_.append(w_i)
        w = 0.3 * w + 0.7 * torch.stack(locals_).mean(0)
    np.testing.assert_allclose(fitted.theta_[0], w.ravel(), atol=1e-10)
    np.testing.assert_allclose(fitted.clients_["c3"]["theta"][0], theta.ravel(), atol=1e-10)


def test_clustered_fl_never_splits_while_updates_agree_and_is_then_fedavg():
    rows = data()
    model = ClusteredFL(eps1=0.0, eps2=0.0, **SMALL).fit(rows)
    np.testing.assert_allclose(model.theta_, FedAvg(**SMALL).fit(rows).theta_, atol=1e-10)


def test_clustered_fl_splits_two_concepts():
    rows = data(8, n=200, concepts=2)
    model = ClusteredFL(eps1=0.5, eps2=0.3, max_clusters=2, **SMALL | {"max_iter": 40, "batch_size": 64}).fit(rows)
    assert len({model.cluster_of_[f"c{i}"] for i in (0, 2, 4, 6)}) == 1
    assert len({model.cluster_of_[f"c{i}"] for i in (1, 3, 5, 7)}) == 1
    assert len(set(model.cluster_of_.values())) == 2


def test_bipartition_is_the_best_of_all():
    rng = np.random.default_rng(0)
    for _ in range(10):
        updates = rng.normal(size=(7, 3))
        unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
        cosine = unit @ unit.T
        sides = [np.array([(s >> i) & 1 for i in range(7)]) for s in range(1, 2**6)]
        across = [cosine[np.ix_(side == 0, side == 1)].max() for side in (bipartition(updates), *sides)]
        assert across[0] == pytest.approx(min(across))


def test_a_cluster_splits_only_when_at_rest_together_but_not_alone():
    opposite = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert disagrees(opposite, np.ones(2), 0.1, 0.5)
    assert not disagrees(opposite, np.ones(2), 0.1, 2.0)
    assert not disagrees(np.ones((2, 2)), np.ones(2), 0.1, 0.5)


@pytest.mark.parametrize("make", [LocalOnly, FedAvg, FedProx, FedAvgPlus, ClusteredFL, PFedMe, FedEM])
def test_words_as_labels_few_rows_one_class_and_a_rare_class_all_work(make):
    rng = np.random.default_rng(0)
    rows = {
        "one row": (rng.normal(size=(1, D)), ["cat"]),
        "one class": (rng.normal(size=(9, D)), ["cat"] * 9),
        "rare": (rng.normal(size=(12, D)), ["cat", "dog", "newt"] * 4),
        "plain": (rng.normal(size=(40, D)), ["cat", "dog"] * 20),
    }
    fed = federate(rows, mode="stacked")
    model = make(**SMALL).fit(fed)
    assert not fed.journal.refusals
    assert model.classes_.tolist() == ["cat", "dog", "newt"]
    assert set(model.predict(rows["plain"][0], client="plain")) <= {"cat", "dog", "newt"}


def test_refusals_say_what_to_do():
    rows = data()
    with pytest.raises(BadParameter, match="share no model: give client="):
        LocalOnly(**SMALL).fit(rows).predict(rows["c0"][0])
    with pytest.raises(BadParameter, match=r"client 'c9': .*'c1'|client 'c9': did you mean"):
        FedEM(2, **SMALL).fit(rows).predict(rows["c0"][0], client="c9")
    with pytest.raises(BadParameter, match="learner='liner' is not known: did you mean 'linear'"):
        FedAvg(learner="liner").fit(rows)
    with pytest.raises(BadParameter, match="weighting='rows' is not known"):
        FedEM(weighting="rows").fit(rows)
    with pytest.raises(BadParameter, match=r"device='(cuda|tpu)' cannot be used here"):
        FedAvg(device="tpu" if torch.cuda.is_available() else "cuda").fit(rows)


@pytest.mark.parametrize("make", [LocalOnly, FedAvg, FedProx, FedAvgPlus, ClusteredFL, PFedMe, FedEM])
def test_missing_values_are_refused_before_any_round_and_so_is_a_model_that_was_not_fitted(make):
    rows = data()
    whole = rows["c0"][0].copy()
    rows["c1"][0][2, 0] = np.nan
    with pytest.raises(BadData, match=r"client 'c1' has missing values in 1 of its rows, .*: fill them in"):
        make(**SMALL).fit(rows)
    with pytest.raises(NotFittedError):
        make(**SMALL).predict(whole)
    model = make(**SMALL).fit(data())
    whole[0, 0] = np.nan
    with pytest.raises(BadData, match=r"contains NaN, a missing value, and .* needs complete rows: fill them in"):
        model.predict(whole, client="c0")


def test_stacked_questions_really_run_stacked(monkeypatch):
    """A question that fails when stacked would be asked again one by one and only be slow: this sees it."""
    seen = []
    monkeypatch.setattr("unpooled.local.single_jobs", lambda clients: seen.extend(clients) or iter(()))
    rows = data(6)
    clients = [Client(name, *pair) for name, pair in rows.items()]
    for make in (FedAvg, FedProx, LocalOnly, PFedMe, FedEM):
        fed = Local(clients, mode="stacked", threads=1)
        fed.journal.begin(0)
        model = make(**SMALL, personalize="none")  # each client makes its choice by itself
        monkeypatch.setattr(type(model), "trainer", _trainer)
        list(model.rounds(fed))
    assert not seen


def _trainer(self, fed):
    from unpooled.learners import Trainer

    return Trainer("linear", D, [0, 1, 2], batch_size=8)
