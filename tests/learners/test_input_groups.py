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


def test_newcomers_without_labels_get_the_network_of_clients_that_look_alike():
    rng = np.random.default_rng(0)

    def rows(group, n=150):
        x = rng.normal(size=(n, 2)) + 4 * group
        above = x[:, 0] > 4 * group
        return x, (above if group else ~above).astype(int)

    data = {f"c{i}": rows(i % 2) for i in range(6)}
    settings = {"learner": "mlp", "hidden": (8,), "lr": 0.1, "batch_size": 32, "max_iter": 40, "random_state": 0}
    model = up.FedConceptEM(1, **settings).fit(data)
    assert len(model.group_theta_) == 2
    for group in (0, 1):
        x, y = rows(group, 400)
        new = model.adapt(x)
        assert new.confidence_ > 0.99
        assert new.score(x, y) > 0.9
