"""A node killed at any moment and restored from its vault gives the same bytes to the same request."""

import numpy as np
import pytest
from masking_cluster import begin

from unpooled import wire
from unpooled.errors import MaskingRefused
from unpooled.secure import MaskingCoordinator, MaskingNode

ANSWER = {"n": np.array(3), "x": np.array([0.1, -2.0])}


def sent(message):
    return wire.pack({}, message)


def restored(node):
    return MaskingNode(node.name, node._member._secret, state=node.to_bytes())


def test_restored_at_every_step():
    cluster = begin(5)
    for t, question in ((1, b"one"), (2, b"two")):
        request, letters = cluster.hub.ask(question)
        for name, node in list(cluster.nodes.items()):
            before = restored(node)  # as if it was killed before the answer was in the vault
            first = node.mask(request, letters[name], question, ANSWER)
            assert sent(before.mask(request, letters[name], question, ANSWER)) == sent(first)
            after = restored(node)
            assert sent(after.mask(request, letters[name], question, ANSWER)) == sent(first)
            cluster.nodes[name] = after
            if name != "node004":
                cluster.hub.add_masked(name, first)
        reveal = cluster.hub.close()
        for name in reveal.answered:
            node = cluster.nodes[name]
            before = restored(node)
            first = node.reveal(reveal)
            assert sent(before.reveal(reveal)) == sent(first)
            after = restored(node)
            assert sent(after.reveal(reveal)) == sent(first)
            cluster.nodes[name] = restored(after)
            cluster.hub.add_shares(name, first)
        total = cluster.hub.finish()
        assert total.t == t
        assert restored(cluster.nodes["node000"]).check_total(total, question)["n"] == 12
        cluster.rejoin()


def test_hello_and_begin_are_repeated():
    cluster = begin(4)
    node = cluster.nodes["node000"]
    roster = cluster.hub.roster()
    again = restored(node)
    assert sent(again.hello("run")) == sent(node.hello("run"))
    assert sent(again.begin(roster)) == sent(node.begin(roster))
    assert sent(again.envelopes(7)) == sent(node.envelopes(7))


def test_a_restored_node_refuses_what_it_refused_before():
    cluster = begin(5)
    answers = dict.fromkeys(cluster.nodes, ANSWER)
    cluster.sum(b"one", answers)
    for name, node in cluster.nodes.items():
        cluster.nodes[name] = restored(node)
    cluster.hub._shown.clear()  # a coordinator that does not care
    with pytest.raises(MaskingRefused, match="was shown before for other nodes"):
        cluster.sum(b"one", answers, lost_a=["node003"])


@pytest.mark.parametrize("saved", [b"", b"{}", b"[]", b"\xff", b'{"run": 1}'])
def test_a_damaged_state_is_not_used(saved):
    with pytest.raises(MaskingRefused, match="the saved state of the masked sums is damaged"):
        MaskingNode("basel", bytes(32), state=saved)


def test_the_state_does_not_hold_the_secret():
    secret = bytes(range(32))
    node = MaskingNode("basel", secret)
    node.hello("run")
    assert secret.hex().encode() not in node.to_bytes()


def test_the_coordinator_does_not_change_by_being_saved():
    cluster = begin(4)
    again = MaskingCoordinator.from_state(cluster.hub.state())
    assert sent(again.ask(b"q")[0]) == sent(cluster.hub.ask(b"q")[0])
    assert again.ask(b"q")[1] == cluster.hub.ask(b"q")[1]
