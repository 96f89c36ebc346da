"""What a coordinator does when nodes are away, late, strangers or of another kind; through Flower's message types."""

import time

import numpy as np
import pytest
from flower_grid import MessageGrid, flower
from toy import Centre, Wanderer, garble, total

from unpooled import store
from unpooled.client import Client
from unpooled.errors import BadParameter, TooFewClients
from unpooled.flower import Flower, client_app, federation
from unpooled.layers.compression.layer import Compressed
from unpooled.local import Local
from unpooled.node.site import Site, Source

CENTRE = Centre(np.zeros(3))


def client(name, seed=0):
    return Client(name, np.random.default_rng(seed).normal(size=(20, 3)))


def sites(*names, columns=None):
    return [Site(n, Source(client(n, i), columns), {}, also=["toy"]) for i, n in enumerate(names)]


class Flaky(MessageGrid):
    """A grid some of whose nodes are away: their messages are swallowed until they are back."""

    def __init__(self, nodes):
        super().__init__([client_app(lambda context, site=site: site) for site in nodes])
        self.away, self.swallowed = set(), 0

    def push(self, message):
        if message.metadata.dst_node_id in self.away:
            self.swallowed += 1
            return f"lost-{self.swallowed}"
        return super().push(message)


def test_below_min_clients_the_run_waits_and_says_for_whom(monkeypatch):
    monkeypatch.setattr(federation, "SAY", 0.0)
    monkeypatch.setattr(federation, "ASK_AGAIN", 0.02)
    grid, said = Flaky(sites("basel", "zurich")), []

    def say(text):
        said.append(text)
        grid.away.clear()  # it comes back while the run waits for it

    fed = Flower(grid, min_clients=2, say=say)
    assert fed.names == ["basel", "zurich"]
    grid.away = {101}
    assert fed.sum(total, CENTRE).n == 40
    assert "1 of 2 answered, waiting for zurich" in said[0]
    assert grid.swallowed >= 1


def test_a_run_gives_up_after_its_wait_with_the_remedy():
    grid = Flaky(sites("basel", "zurich"))
    fed = Flower(grid, min_clients=2, timeout=0.1, wait=0.3)
    fed.names  # noqa: B018
    grid.away = {101}
    with pytest.raises(
        TooFewClients, match=r"1 of 2 clients answered, min_clients=2: raise timeout=.*zurich, no answer"
    ):
        fed.sum(total, CENTRE)


def test_nobody_there_says_what_to_do():
    with pytest.raises(TooFewClients, match=r"0 of the 1 nodes needed came within wait=0.1 s: start them"):
        Flower(Flaky([]), wait=0.1).sum(total, CENTRE)


def test_more_clients_than_names_cannot_be():
    with pytest.raises(BadParameter, match="min_clients=3 is more than the 2 names"):
        Flower(Flaky([]), min_clients=3, names=["a", "b"])


def test_two_nodes_of_one_name_the_first_stays():
    fed = Flower(Flaky(sites("basel", "basel", "zurich")))
    assert fed.names == ["basel", "zurich"]
    assert "two nodes called 'basel'" in fed._roster.refused[101]


def test_columns_are_those_of_the_first_by_name_and_others_are_told_apart():
    nodes = [*sites("zurich", columns=["c", "b", "a"]), *sites("basel", columns=["a", "b", "c"])]
    fed = Flower(Flaky([*nodes, *sites("geneva", columns=["a", "b", "x"])]))
    assert fed.names == ["basel", "zurich"]
    assert fed.columns == ["a", "b", "c"]
    assert "'geneva' has no column 'c'" in fed._roster.refused[102]
    rows = {s.name: s.source.client.x for s in nodes}
    expected = rows["basel"].sum(0) + rows["zurich"][:, ::-1].sum(0)
    np.testing.assert_allclose(fed.sum(total, CENTRE).x, expected)


def test_a_column_that_others_lack_needs_a_choice():
    nodes = [
        *sites("basel", columns=["a", "b", "c"]),
        Site("bern", Source(Client("bern", np.ones((5, 4))), list("abcd")), {}),
    ]
    assert Flower(Flaky(nodes)).names == ["basel"]
    assert Flower(Flaky(nodes), columns=["a", "b", "c"]).names == ["basel", "bern"]


def test_an_option_that_cannot_travel_is_refused_before_anything_is_sent():
    grid = Flaky(sites("basel"))
    fed = Flower(grid)
    fed.names  # noqa: B018
    ask = total.then(garble, secret=object())
    with pytest.raises(BadParameter, match=r"an option of toy\.total cannot travel"):
        fed.sum(ask, CENTRE)


def test_a_run_resumed_by_another_coordinator_has_the_same_bits():
    nodes = sites("basel", "geneva", "zurich")
    whole = Wanderer().fit(Flower(Flaky(sites("basel", "geneva", "zurich")), min_clients=3))
    first = Wanderer().rounds(Flower(Flaky(nodes), min_clients=3))
    saved = [next(first) for _ in range(4)][-2]
    second = Wanderer()
    list(second.rounds(Flower(Flaky(nodes), min_clients=3), saved))
    assert np.array_equal(second.mean_, whole.mean_)


def test_a_resumed_run_keeps_the_order_of_columns_whoever_is_there_first():
    nodes = [*sites("basel", columns=["a", "b", "c"]), *sites("zurich", columns=["c", "b", "a"])]
    first = Wanderer().rounds(Flower(Flaky(nodes)))
    saved = store.loads(store.dumps([next(first) for _ in range(3)][-1]))
    grid = Flaky(nodes)
    grid.away = {100}  # basel, which the columns came from
    fed, second = Flower(grid, timeout=0.2), Wanderer()
    list(second.rounds(fed, saved))
    assert second.columns_ == ["a", "b", "c"]
    np.testing.assert_allclose(fed.only(["zurich"]).sum(total, CENTRE).x, nodes[1].source.client.x[:, ::-1].sum(0))


def test_while_it_waits_for_nodes_it_says_how_many_have_come():
    grid, said = Flaky(sites("basel", "geneva", "zurich")), []
    apps, grid.apps = grid.apps, {}

    def say(text):
        said.append(text)
        grid.apps = dict(list(apps.items())[: len(said)])

    assert Flower(grid, min_clients=3, say=say).names == ["basel", "geneva", "zurich"]
    assert said == [f"waiting for nodes: {n} of 3 are there" for n in (0, 1, 2)]


def test_state_that_is_gone_is_a_clear_refusal():
    nodes = sites("basel")
    rounds = Wanderer().rounds(Flower(Flaky(nodes)))
    saved = [next(rounds) for _ in range(3)][-1]
    for key in [k for k in nodes[0].vault if "state" in k]:
        del nodes[0].vault[key]
    with pytest.raises(TooFewClients, match="no longer has its state after round"):
        list(Wanderer().rounds(Flower(Flaky(nodes)), saved))


def test_layers_work_over_flower():
    clients = [client(n, i) for i, n in enumerate(("basel", "zurich"))]
    here = Compressed(Local(clients, mode="one by one"), levels=64).sum(total, CENTRE)
    there = Compressed(flower(clients), levels=64).sum(total, CENTRE)
    np.testing.assert_array_equal(here.x, there.x)


class Slow(Flaky):
    """A grid whose nodes take some time for each answer."""

    def __init__(self, nodes, seconds):
        super().__init__(nodes)
        self.seconds, self.due, self.asked = seconds, {}, 0

    def push(self, message):
        name = super().push(message)
        self.due[name], self.asked = time.monotonic() + self.seconds, self.asked + 1
        return name

    def pull_messages(self, message_ids):
        return super().pull_messages([i for i in message_ids if time.monotonic() >= self.due.get(i, 0)])


def test_slow_questions_are_not_asked_again_once_their_pace_is_known(monkeypatch):
    monkeypatch.setattr(federation, "ASK_AGAIN", 0.1)
    monkeypatch.setattr(federation, "ASK_AGAIN_AT_MOST", 0.1)
    monkeypatch.setattr(federation, "PACES", 100.0)  # a busy machine has a pace of its own
    grid = Slow(sites("basel", "zurich"), 0.3)
    fed = Flower(grid, min_clients=2)
    fed.names  # noqa: B018
    before = grid.asked
    fed.sum(total, CENTRE)
    first = grid.asked - before
    fed.sum(total, CENTRE)
    assert first > 2
    assert grid.asked - before - first == 2
