"""Whole sums: right over those who answered whatever is lost, or a clear stop; late answers never make a second total."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from masking_cluster import Cluster, begin

from unpooled import tree, wire
from unpooled.errors import BadData, MaskingRefused, TooFewClients
from unpooled.secure import MaskingCoordinator, MaskingNode, decode_total, layout, ring


class Stats(NamedTuple):
    n: np.ndarray
    x: np.ndarray
    extra: None = None


def values(cluster, seed=0, size=20):
    """A tree of numbers for each node."""
    rng = np.random.default_rng(seed)
    return {
        name: Stats(np.array(rng.integers(0, 1000)), rng.normal(size=(size // 4, 4)) * 10.0 ** rng.uniform(-10, 10))
        for name in cluster.nodes
    }


def assert_is_sum(total, answers):
    """The total is that of those who answered, to 4e-16 of the sum of magnitudes, and so shaped."""
    got = decode_total(total)
    chosen = [answers[name] for name in total.answered]
    assert isinstance(got, Stats)
    assert got.extra is None
    assert got.n.dtype == np.int64
    assert int(got.n) == sum(int(a.n) for a in chosen)
    for place, value in np.ndenumerate(got.x):
        terms = [Fraction(float(a.x[place])) for a in chosen]
        assert abs(Fraction(float(value)) - sum(terms)) <= Fraction(4e-16) * sum(map(abs, terms))


@pytest.mark.parametrize("n", [3, 4, 10, 64, 70])
def test_without_losses(n):
    cluster = begin(n)
    answers = values(cluster)
    total = cluster.sum(b"e_step", answers)
    assert total.answered == tuple(cluster.nodes)
    assert_is_sum(total, answers)
    for node in cluster.nodes.values():
        assert np.array_equal(node.check_total(total, b"e_step").x, decode_total(total).x)


@pytest.mark.parametrize("seed", range(24))
def test_random_losses_in_both_exchanges(seed):
    """Rounds with up to 40 % lost in either exchange: the right total over those who answered, or a clear stop."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 31))
    cluster = begin(n, seed=seed)
    stopped = 0
    for round in range(3):
        question, answers = b"round %d" % round, values(cluster, seed=100 * seed + round, size=4)
        lost_a, lost_b = (set(rng.choice(list(cluster.nodes), int(n * rng.uniform(0, 0.4)), False)) for _ in range(2))
        try:
            total = cluster.sum(question, answers, lost_a, lost_b)
        except TooFewClients:
            lost = lost_a | lost_b if cluster.hub._reveal else lost_a
            assert n - len(lost) < max(3, 2 * n // 3 + 1)  # it stops only if too few are left
            stopped += 1
            break
        assert total.answered == tuple(sorted(set(cluster.nodes) - lost_a))
        assert_is_sum(total, answers)
        cluster.rejoin()
    assert stopped or cluster.hub.t == 4


def test_a_third_may_drop_at_any_point():
    cluster = begin(12)  # 9 of 12 holders are needed
    answers = values(cluster)
    names = list(cluster.nodes)
    total = cluster.sum(b"one", answers, lost_a=names[:2], lost_b=names[2:3])
    assert len(total.answered) == 10
    assert_is_sum(total, answers)
    total = cluster.sum(b"two", answers, lost_a=names[4:5])  # those who missed the first sum have not come back
    assert total.answered == tuple(n for n in names[2:] if n != names[4])
    assert_is_sum(total, answers)


@pytest.mark.slow
def test_a_large_group_masks_with_neighbours_alone():
    cluster = begin(100)
    answers = values(cluster, size=4)
    names = list(cluster.nodes)
    total = cluster.sum(b"one", answers, lost_a=names[5:15], lost_b=names[50:60])
    assert len(total.answered) == 90
    assert_is_sum(total, answers)


def test_the_order_of_arrival_does_not_change_a_bit():
    limbs = []
    for order in (1, -1):
        cluster = begin(7)
        answers = values(cluster)
        _, masked = cluster.answers(b"q", answers, lost={"node002"})
        for name in list(masked)[::order]:
            cluster.hub.add_masked(name, masked[name])
        reveal = cluster.hub.close()
        for name in reveal.answered[::order]:
            cluster.hub.add_shares(name, cluster.nodes[name].reveal(reveal))
        limbs.append(cluster.hub.finish().limbs[:, :-2])  # tags depend on the run's keys
    assert np.array_equal(*limbs)


def test_names_do_not_change_a_bit():
    """The same numbers at other nodes have the same total."""
    cluster = begin(6)
    answers = values(cluster)
    turned = dict(zip(answers, [*list(answers.values())[1:], answers["node000"]]))
    first, second = cluster.sum(b"one", answers), cluster.sum(b"two", turned)
    assert np.array_equal(first.limbs[:, :-2], second.limbs[:, :-2])


def test_a_late_answer_is_left_out_for_good():
    cluster = begin(5)
    answers = values(cluster)
    _, masked = cluster.answers(b"one", answers)
    late = masked.pop("node004")
    for name, message in masked.items():
        assert cluster.hub.add_masked(name, message)
    reveal = cluster.reveal()
    assert cluster.hub.add_masked("node004", late) is False
    assert cluster.hub.close() is reveal
    total = cluster.hub.finish()
    assert "node004" not in total.answered
    assert_is_sum(total, answers)
    assert cluster.hub.missing() == []  # but its envelopes came, so it takes part in the next sum
    assert "node004" in cluster.sum(b"two", answers).answered


def test_an_answer_after_the_total_is_late_too():
    cluster = begin(5)
    answers = values(cluster)
    _, masked = cluster.answers(b"one", answers)
    late = masked.pop("node004")
    for name, message in masked.items():
        cluster.hub.add_masked(name, message)
    cluster.reveal()
    cluster.hub.finish()
    assert cluster.hub.missing() == ["node004"]
    assert cluster.hub.add_masked("node004", late) is False
    assert cluster.hub.missing() == []


def test_too_few_shares_stop_and_the_same_request_goes_on():
    cluster = begin(6)  # 5 of 6 holders are needed
    answers = values(cluster)
    with pytest.raises(TooFewClients, match="4 of those who hold shares of node000 sent them in SUM 1, 5 are needed"):
        cluster.sum(b"one", answers, lost_b=["node000", "node001"])
    with pytest.raises(MaskingRefused, match="SUM 1 is still open"):
        cluster.hub.ask(b"two")
    reveal = cluster.hub.close()
    cluster.hub.add_shares("node001", cluster.nodes["node001"].reveal(reveal))
    assert_is_sum(cluster.hub.finish(), answers)


def test_too_few_answers_stop_before_any_share_is_asked_for():
    cluster = begin(6)
    answers = values(cluster)
    _, masked = cluster.answers(b"one", answers, lost=["node000", "node001"])
    with pytest.raises(MaskingRefused, match="SUM 1 is not closed"):
        cluster.hub.finish()
    for name, message in masked.items():
        cluster.hub.add_masked(name, message)
    with pytest.raises(TooFewClients, match="4 of those who hold shares of node000 answered SUM 1, 5 are needed"):
        cluster.hub.close()
    request, letters = cluster.hub.ask(b"one")  # the same again
    late = cluster.nodes["node000"].mask(request, letters["node000"], b"one", answers["node000"])
    cluster.hub.add_masked("node000", late)
    cluster.reveal()
    assert_is_sum(cluster.hub.finish(), answers)


def test_nodes_lost_before_the_first_sum_come_in_later():
    cluster = begin(6, lost=["node003"])
    answers = values(cluster)
    first = cluster.sum(b"one", answers)
    assert "node003" not in first.answered
    assert cluster.hub.not_begun() == ["node003"]
    cluster.hub.add_begun("node003", cluster.nodes["node003"].begin(cluster.hub.roster()))
    assert cluster.hub.not_begun() == []
    cluster.rejoin()
    second = cluster.sum(b"two", answers)
    assert "node003" in second.answered
    node = cluster.nodes["node003"]  # it can check totals, that of the sum it missed too
    assert np.array_equal(node.check_total(first, b"one").x, decode_total(first).x)


def test_too_few_to_begin():
    hub = MaskingCoordinator("run")
    for name in ("a", "b"):
        hub.add_keys(name, MaskingNode(name, name.encode() * 32).hello("run"))
    with pytest.raises(TooFewClients, match="2 nodes gave keys for masked sums, 3 are needed"):
        hub.roster()
    cluster = begin(6, lost=["node000", "node001"])
    with pytest.raises(TooFewClients, match="4 of 6 nodes sent envelopes for SUM 1"):
        cluster.hub.ask(b"q")


def test_an_answer_of_another_shape_is_left_out_and_named():
    cluster = begin(7)
    answers = values(cluster)
    answers["node001"] = Stats(np.array(1), np.zeros((2, 2)))
    total = cluster.sum(b"one", answers)
    assert "node001" not in total.answered
    assert "other shapes" in cluster.hub.refused["node001"]
    assert_is_sum(total, answers)


@pytest.mark.parametrize(
    "bad", [{"a": "text"}, {"a": True, "b": 1.0}, np.array([True]), np.array([1j]), np.array([np.nan])]
)
def test_what_cannot_be_masked_is_refused_before_anything_leaves(bad):
    cluster = begin(3)
    with pytest.raises(BadData):
        cluster.sum(b"q", dict.fromkeys(cluster.nodes, bad))
    total = cluster.sum(b"q", {n: {"a": 1.0, "b": None, "c": np.float32(0.5), "d": 2} for n in cluster.nodes})
    got = decode_total(total)
    assert (float(got["a"]), got["b"], float(got["c"]), int(got["d"])) == (3.0, None, 1.5, 6)
    assert got["c"].dtype == np.float32


def test_an_answer_without_numbers_has_an_empty_total():
    cluster = begin(3)
    assert decode_total(cluster.sum(b"tell", dict.fromkeys(cluster.nodes, None))) is None


def test_messages_travel_as_trees():
    """Every message, sent as bytes and read back, works as before."""

    def sent(message):
        return wire.unpack(wire.pack({}, message)).value()

    nodes = {name: MaskingNode(name, name.encode() * 32) for name in "abcd"}
    hub = MaskingCoordinator("run")
    for name, node in nodes.items():
        hub.add_keys(name, sent(node.hello("run")))
    for name, node in nodes.items():
        hub.add_begun(name, sent(node.begin(sent(hub.roster()))))
    cluster = Cluster(nodes, hub)
    answers = values(cluster)
    request, letters = hub.ask(b"q")
    for name in "abc":
        hub.add_masked(name, sent(nodes[name].mask(sent(request), letters[name], b"q", answers[name])))
    for name in "abc":
        hub.add_shares(name, sent(nodes[name].reveal(sent(hub.close()))))
    total = hub.finish()
    assert_is_sum(total, answers)
    assert np.array_equal(nodes["a"].check_total(sent(total), b"q").x, decode_total(total).x)


def test_a_repeated_question_is_added_among_the_same_nodes():
    """More answer the second time: they are left out, since the two totals would tell their shares."""
    cluster = begin(7)
    answers = values(cluster)
    first = cluster.sum(b"same", answers, lost_a=["node001"])
    cluster.rejoin()
    second = cluster.sum(b"same", answers)
    assert second.answered == first.answered
    assert np.array_equal(second.limbs[:, :-2], first.limbs[:, :-2])
    assert "was not in the first total" in cluster.hub.refused["node001"]
    with pytest.raises(
        TooFewClients, match="SUM 3 repeats a question whose total was shown with node002, which is missing"
    ):
        cluster.sum(b"same", answers, lost_a=["node002"])


def test_masked_totals_are_exact_totals():
    cluster = begin(5)
    answers = values(cluster)
    masked = decode_total(cluster.sum(b"q", answers))
    encoded = [layout.encode(answer, len(answers)) for answer in answers.values()]
    total = ring.RingSum(encoded[0][1].shape[1])
    for _, limbs in encoded:
        total.add(limbs)
    plain = layout.decode(encoded[0][0], total.total())
    assert all(np.array_equal(a, b) for a, b in zip(tree.leaves(masked), tree.leaves(plain)))


def test_masked_answers_tell_nothing_by_themselves():
    """A masked answer of zeros looks as random as any; two nodes' differ; the numbers do not show in it."""
    cluster = begin(3)
    _, masked = cluster.answers(b"q", dict.fromkeys(cluster.nodes, np.zeros(5000)))
    for message in masked.values():
        bits = np.unpackbits(message.limbs.copy().view(np.uint8).ravel())
        assert abs(bits.mean() - 0.5) < 0.003  # 960 000 bits: five standard errors are 0.0026
    pair = masked["node000"].limbs[:, :5000], masked["node001"].limbs[:, :5000]
    assert (pair[0] == pair[1]).mean() < 0.001


def test_the_coordinator_goes_on_from_its_state():
    cluster = begin(6)
    answers = values(cluster)
    _, masked = cluster.answers(b"one", answers, lost=["node005"])
    for name, message in masked.items():
        cluster.hub.add_masked(name, message)

    def restored(hub):
        return MaskingCoordinator.from_state(tree.unpack(*tree.pack(hub.state())))

    cluster = Cluster(cluster.nodes, restored(cluster.hub))
    cluster.reveal()
    cluster = Cluster(cluster.nodes, restored(cluster.hub))
    assert_is_sum(cluster.hub.finish(), answers)
    cluster = Cluster(cluster.nodes, restored(cluster.hub))
    assert_is_sum(cluster.sum(b"two", answers), answers)


def test_a_false_share_is_outvoted_or_named():
    cluster = begin(6)  # 5 of 6 are needed, so one may lie
    answers = values(cluster)
    _, masked = cluster.answers(b"one", answers)
    for name, message in masked.items():
        cluster.hub.add_masked(name, message)
    cluster.reveal()
    true = cluster.hub._shares["node002"]
    cluster.hub._shares["node002"] = true._replace(shares=true.shares ^ 1)
    state = cluster.hub.state()
    assert_is_sum(cluster.hub.finish(), answers)
    del state["shares"]["node004"]
    with pytest.raises(MaskingRefused, match="one of their holders sent a false share"):
        MaskingCoordinator.from_state(state).finish()
