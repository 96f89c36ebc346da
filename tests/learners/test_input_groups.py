"""Groups of clients with similar inputs: found by sums, whatever the order of clients; and the networks of the groups."""

import numpy as np
import pytest

import unpooled as up
from unpooled.learners import exact, input_groups

MEANS = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, -1.0]])


def clients(groups, n=200, seed=0):
    rng = np.random.default_rng(seed)
    return {f"c{i}": (MEANS[g] + rng.normal(size=(n, 3)), rng.integers(0, 2, n)) for i, g in enumerate(groups)}


def found(data, seed=0):
    fed = up.federate(data)
    sums = fed.sum(exact.column_sums, None)
    groups = input_groups.find_groups(fed, sums.x / sums.n, np.random.default_rng(seed))
    return groups, {c.name: int(c.state["input_group"]) for c in fed.here()}


def partition(own):
    return {frozenset(name for name in own if own[name] == g) for g in set(own.values())}


@pytest.mark.parametrize("truth", [[0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 1, 2, 0, 1, 2, 2], [0, 1, 2]])
def test_groups_are_found(truth):
    groups, own = found(clients(truth))
    wanted = {f"c{i}": g for i, g in enumerate(truth)}
    assert partition(own) == partition(wanted)
    assert len(groups.centres) == len(set(truth))


def test_the_order_of_clients_does_not_matter():
    data = clients([0, 1, 2, 0, 1, 2])
    _, own = found(data)
    _, again = found(dict(reversed(data.items())))
    assert partition(own) == partition(again)


def test_a_new_client_gets_the_group_that_it_was_drawn_from():
    groups, own = found(clients([0, 1, 2, 0, 1, 2]))
    for i, name in enumerate(("c0", "c1", "c2")):
        x, _ = clients([i], seed=9)["c0"]
        p = groups.probabilities(x)
        assert p.argmax() == own[name]
        assert p.max() > 0.99
        assert p.sum() == pytest.approx(1.0)


def opposite(group, seed, n=150):
    """Rows that are labelled the other way round in each group; single rows hardly tell the group, means of many do."""
    x = np.random.default_rng(seed).normal(size=(n, 2))
    x[:, 1] += 0.8 * group
    above = x[:, 0] > 0
    return x, (above if group else ~above).astype(int)


NETWORK = {"learner": "mlp", "hidden": (8,), "lr": 0.1, "batch_size": 32, "max_iter": 40, "tol": 0.0, "random_state": 0}


@pytest.mark.parametrize("model", [up.FedConceptEM(1, **NETWORK), up.FedGMM(1, 1, **NETWORK)])
def test_newcomers_without_labels_get_the_network_of_clients_that_look_alike(model, tmp_path):
    model.fit({f"c{i}": opposite(i % 2, i) for i in range(6)})
    assert len(model.group_theta_) == 2
    model.save(tmp_path / "model")
    again = up.load(tmp_path / "model")
    for group in (0, 1):
        x, y = opposite(group, 10 + group, 400)
        new = model.adapt(x)
        assert new.confidence_ > 0.99
        assert new.score(x, y) > 0.9 > 0.2 + model.score(x, y)
        np.testing.assert_allclose(new.predict_proba(x).sum(1), 1.0)
        np.testing.assert_array_equal(again.adapt(x).predict_proba(x), new.predict_proba(x))


def test_joint_models_of_rows_with_gaps_have_no_groups():
    data = {f"c{i}": opposite(i % 2, i) for i in range(4)}
    data["c0"][0][0, 0] = np.nan
    model = up.FedGMM(1, 1, **NETWORK | {"max_iter": 8}).fit(data)
    assert model.groups_ is None
    x, _ = opposite(0, 9)
    assert np.isfinite(model.adapt(x).predict_proba(x)).all()
