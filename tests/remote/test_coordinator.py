"""What a coordinator does when nodes are offline, late, unknown or have other columns; over the transport in memory."""

import numpy as np
import pytest
from flower_grid import flower
from memory import MemoryTransport, UnreliableTransport
from toy import Centre, Wanderer, garble, total

from unpooled import store
from unpooled.client import Client
from unpooled.errors import BadParameter, TooFewClients
from unpooled.layers.compression.layer import Compressed
from unpooled.local import Local
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import Remote, exchange

CENTRE = Centre(np.zeros(3))


def client(name, seed=0):
    return Client(name, np.random.default_rng(seed).normal(size=(20, 3)))


def sites(*names, columns=None):
    return [Site(n, Source(client(n, i), columns), {}, also=["toy"]) for i, n in enumerate(names)]


def test_below_min_clients_the_run_waits_and_says_for_whom(monkeypatch):
    monkeypatch.setattr(exchange, "SAY_EVERY", 0.0)
    grid, said = MemoryTransport(sites("basel", "zurich")), []

    def say(text):
        said.append(text)
        grid.away.clear()  # it comes back while the run waits for it

    fed = Remote(grid, min_clients=2, say=say, retry=0.02)
    assert fed.names == ["basel", "zurich"]
    grid.away = {101}
    assert fed.sum(total, CENTRE).n == 40
    assert "1 of 2 answered, waiting for zurich" in said[0]
    assert len(grid.sent) > 4, "two hellos, two questions, and zurich's again"


def test_a_run_gives_up_after_its_wait_with_the_remedy():
    grid = MemoryTransport(sites("basel", "zurich"))
    fed = Remote(grid, min_clients=2, timeout=0.1, wait=0.3)
    fed.names  # noqa: B018
    grid.away = {101}
    with pytest.raises(
        TooFewClients, match=r"1 of 2 clients answered, min_clients=2: raise timeout=.*zurich, no answer"
    ):
        fed.sum(total, CENTRE)


def test_nobody_there_says_what_to_do():
    with pytest.raises(TooFewClients, match=r"0 of 1 nodes are ready after wait=0.1 s: start the missing nodes"):
        Remote(MemoryTransport([]), wait=0.1).sum(total, CENTRE)


def test_more_clients_than_names_cannot_be():
    with pytest.raises(BadParameter, match="min_clients=3 is more than the 2 names"):
        Remote(MemoryTransport([]), min_clients=3, names=["a", "b"])


def test_two_nodes_of_one_name_the_first_stays():
    fed = Remote(MemoryTransport(sites("basel", "basel", "zurich")))
    assert fed.names == ["basel", "zurich"]
    assert "two nodes called 'basel'" in fed.roster.rejected[101]


def test_columns_are_those_of_the_first_by_name_and_others_are_told_apart():
    nodes = [*sites("zurich", columns=["c", "b", "a"]), *sites("basel", columns=["a", "b", "c"])]
    fed = Remote(MemoryTransport([*nodes, *sites("geneva", columns=["a", "b", "x"])]))
    assert fed.names == ["basel", "zurich"]
    assert fed.columns == ["a", "b", "c"]
    assert "'geneva' has no column 'c'" in fed.roster.rejected[102]
    rows = {s.name: s.source.client.x for s in nodes}
    expected = rows["basel"].sum(0) + rows["zurich"][:, ::-1].sum(0)
    np.testing.assert_allclose(fed.sum(total, CENTRE).x, expected)


def test_a_column_that_others_lack_needs_a_choice():
    nodes = [
        *sites("basel", columns=["a", "b", "c"]),
        Site("bern", Source(Client("bern", np.ones((5, 4))), list("abcd")), {}),
    ]
    assert Remote(MemoryTransport(nodes)).names == ["basel"]
    assert Remote(MemoryTransport(nodes), columns=["a", "b", "c"]).names == ["basel", "bern"]


def test_an_option_that_cannot_travel_is_refused_before_anything_is_sent():
    grid = MemoryTransport(sites("basel"))
    fed = Remote(grid)
    fed.names  # noqa: B018
    ask = total.then(garble, secret=object())
    with pytest.raises(BadParameter, match=r"an option of toy\.total cannot be sent"):
        fed.sum(ask, CENTRE)


def test_a_run_resumed_by_another_coordinator_has_the_same_bits():
    nodes = sites("basel", "geneva", "zurich")
    whole = Wanderer().fit(Remote(MemoryTransport(sites("basel", "geneva", "zurich")), min_clients=3))
    first = Wanderer().rounds(Remote(MemoryTransport(nodes), min_clients=3))
    saved = [next(first) for _ in range(4)][-2]
    second = Wanderer()
    list(second.rounds(Remote(MemoryTransport(nodes), min_clients=3), saved))
    assert np.array_equal(second.mean_, whole.mean_)


def test_a_resumed_run_keeps_the_order_of_columns_whoever_is_there_first():
    nodes = [*sites("basel", columns=["a", "b", "c"]), *sites("zurich", columns=["c", "b", "a"])]
    first = Wanderer().rounds(Remote(MemoryTransport(nodes)))
    saved = store.loads(store.dumps([next(first) for _ in range(3)][-1]))
    grid = MemoryTransport(nodes)
    grid.away = {100}  # basel, which the columns came from
    fed, second = Remote(grid, timeout=0.2), Wanderer()
    list(second.rounds(fed, saved))
    assert second.columns_ == ["a", "b", "c"]
    np.testing.assert_allclose(fed.only(["zurich"]).sum(total, CENTRE).x, nodes[1].source.client.x[:, ::-1].sum(0))


def test_while_it_waits_it_says_who_is_missing_and_why():
    nodes = [*sites("basel", "geneva", columns=["a", "b", "c"]), *sites("zurich", columns=["a", "b", "x"])]
    transport, said = MemoryTransport(nodes, keys={100: "basel", 101: "geneva", 102: "zurich", 103: "bern"}), []
    transport.offline = {101}

    def say(text):
        said.append(text)
        if "zurich" in text:
            transport.offline.clear()

    fed = Remote(transport, min_clients=2, columns=["a", "b", "c"], say=say)
    assert fed.names == ["basel", "geneva"]
    assert said[0].startswith("waiting for nodes: ")
    assert "geneva is admitted but not connected" in said[0]
    assert "bern is admitted but not connected" in said[0]


def test_a_rejected_node_is_named_with_its_reason():
    nodes = [*sites("basel", columns=["a", "b", "c"]), *sites("zurich", columns=["a", "b", "x"])]
    with pytest.raises(TooFewClients, match=r"1 of 2 nodes are ready \(basel\); rejected: 'zurich' has no column 'c'"):
        Remote(MemoryTransport(nodes), min_clients=2, columns=["a", "b", "c"], wait=0.6).sum(total, CENTRE)


def test_a_name_belongs_to_the_key_it_was_admitted_with():
    transport = MemoryTransport(sites("basel", "basel"), keys={100: "mallory", 101: "basel"})
    fed = Remote(transport, wait=5)
    assert fed.names == ["basel"]
    assert fed.roster.nodes == {"basel": 101}
    assert "'basel' uses the key admitted as 'mallory'" in fed.roster.rejected[100]


def test_refusals_that_leave_too_few_end_the_round_at_once():
    nodes, said = sites("basel", "geneva", "zurich"), []
    nodes[0].also, nodes[0].policy = [], lambda: Policy(questions=["none"])
    transport = MemoryTransport(nodes)
    fed = Remote(transport, min_clients=3, timeout=600, wait=600, say=said.append)
    fed.names  # noqa: B018
    transport.away = {102}  # silent; waiting for it cannot help
    with pytest.raises(TooFewClients, match=r"1 of 3 clients answered"):
        fed.sum(total, CENTRE)
    assert any("basel refused" in text for text in said)


@pytest.mark.parametrize("seed", range(2))
def test_messages_lost_doubled_and_reordered_change_no_bit(seed):
    names = ("basel", "geneva", "zurich")
    whole = Wanderer().fit(Remote(MemoryTransport(sites(*names)), min_clients=3))
    fed = Remote(UnreliableTransport(sites(*names), seed, share=0.3), min_clients=3, retry=0.02)
    assert np.array_equal(Wanderer().fit(fed).mean_, whole.mean_)


def test_state_that_is_gone_is_a_clear_refusal():
    nodes = sites("basel")
    rounds = Wanderer().rounds(Remote(MemoryTransport(nodes)))
    saved = [next(rounds) for _ in range(3)][-1]
    for key in [k for k in nodes[0].vault if "state" in k]:
        del nodes[0].vault[key]
    with pytest.raises(TooFewClients, match="no longer has its state after round"):
        list(Wanderer().rounds(Remote(MemoryTransport(nodes)), saved))


def test_layers_work_over_flower():
    clients = [client(n, i) for i, n in enumerate(("basel", "zurich"))]
    here = Compressed(Local(clients, mode="one by one"), levels=64).sum(total, CENTRE)
    there = Compressed(flower(clients), levels=64).sum(total, CENTRE)
    np.testing.assert_array_equal(here.x, there.x)


def test_slow_questions_are_not_asked_again_once_their_pace_is_known(monkeypatch):
    monkeypatch.setattr(exchange, "SLOW_FACTOR", 100.0)  # a busy machine has a pace of its own
    monkeypatch.setattr(exchange, "RECEIVE_WAIT", 0.05)
    transport = MemoryTransport(sites("basel", "zurich"))
    fed = Remote(transport, min_clients=2, retry=0.1)
    fed.names  # noqa: B018
    transport.seconds = 0.3
    before = len(transport.sent)
    fed.sum(total, CENTRE)
    first = len(transport.sent) - before
    fed.sum(total, CENTRE)
    assert first > 2
    assert len(transport.sent) - before - first == 2
