"""A coordinator that lies: every attempt at a second total or at one node's share ends in a refusal with a reason."""

import numpy as np
import pytest
from masking_cluster import begin, make_nodes

from unpooled.errors import MaskingRefused, UnpooledError
from unpooled.secure import MaskingNode, decode_total, graph, ring
from unpooled.secure.messages import RevealRequest

SIZES = [3, 5, 9, pytest.param(20, marks=pytest.mark.slow)]
VICTIM = "node000"


def opened(n, question=b"q"):
    """A run in which everybody has answered SUM 1: (cluster, answers, masked answers, the honest request for shares)."""
    cluster = begin(n)
    answers = {name: np.arange(3.0) * i for i, name in enumerate(cluster.nodes)}
    _, masked = cluster.answers(question, answers)
    for name, message in masked.items():
        cluster.hub.add_masked(name, message)
    return cluster, answers, masked, cluster.hub.close()


def told(reveal, dead):
    """A request for shares in which some are said to be lost."""
    kept = [i for i, name in enumerate(reveal.answered) if name not in dead]
    return reveal._replace(answered=tuple(reveal.answered[i] for i in kept), signatures=reveal.signatures[kept])


def refusals(cluster, requests):
    """Who refuses which request for shares, and how many gave shares."""
    given, reasons = [], []
    for name, request in requests.items():
        try:
            given.append((name, cluster.nodes[name].reveal(request)))
        except MaskingRefused as refusal:
            reasons.append(str(refusal))
    return given, reasons


def letter_for(cluster, name, cohort):
    """What a lying coordinator writes to a node, so that it fits a smaller cohort."""
    hub = cluster.hub
    honest, hub._request = hub._request, hub._request._replace(cohort=cohort)
    letter = hub._letter(name)
    hub._request = honest
    return letter


@pytest.mark.parametrize("n", [4, 5, 9, 20])
def test_two_cohorts_for_one_sum(n):
    """Some are asked in the whole cohort, others in a smaller one: nobody gives shares for either."""
    cluster = begin(n)
    request, _ = cluster.hub.ask(b"q")
    smaller = request._replace(cohort=request.cohort[: graph.threshold(n)])
    signatures = {}
    for i, name in enumerate(smaller.cohort):
        asked = smaller if i % 2 else request
        masked = cluster.nodes[name].mask(asked, letter_for(cluster, name, asked.cohort), b"q", np.zeros(3))
        signatures[name] = masked.signature
    reveal = RevealRequest(1, smaller.cohort, np.stack([signatures[name] for name in smaller.cohort]))
    given, reasons = refusals(cluster, dict.fromkeys(smaller.cohort, reveal))
    assert given == []
    assert all("did not sign" in reason for reason in reasons)
    second = smaller.cohort[1]  # was asked in the smaller cohort
    with pytest.raises(MaskingRefused, match="SUM 1 was asked before with another question or cohort"):
        cluster.nodes[second].mask(request, letter_for(cluster, second, request.cohort), b"q", np.zeros(3))


@pytest.mark.parametrize("n", SIZES)
def test_alive_to_some_and_dead_to_others(n):
    """However the coordinator splits the nodes, it never has enough shares of both secrets of the victim."""
    for n_dead in range(1, n):
        cluster, _, _, reveal = opened(n)
        lie = told(reveal, {VICTIM})
        requests = {name: lie if 0 < i <= n_dead else reveal for i, name in enumerate(cluster.nodes)}
        given, reasons = refusals(cluster, requests)
        dead = sum(1 for name, _ in given if requests[name] is lie)
        alive = len(given) - dead
        assert dead < graph.threshold(n) or alive < graph.threshold(n)
        assert len(given) + len(reasons) == n
        for name, _ in given:  # and nobody who gave one kind gives the other
            if name != VICTIM:
                with pytest.raises(MaskingRefused, match="another set of nodes"):
                    cluster.nodes[name].reveal(reveal if requests[name] is lie else lie)


@pytest.mark.parametrize("n", [6, 9, 20])
def test_a_total_of_one_cannot_be_pieced_together(n):
    """Everybody is told that the victim and two others answered, each another two: too few for any of them."""
    cluster, _, _, reveal = opened(n)
    names = list(cluster.nodes)
    alive = {name: {VICTIM, name, names[(i + 1) % n], names[(i + 2) % n]} for i, name in enumerate(names)}
    given, reasons = refusals(cluster, {name: told(reveal, set(names) - alive[name]) for name in names})
    assert given == []
    assert all("are needed" in reason for reason in reasons)


@pytest.mark.parametrize("n", [6, 9, 20])
def test_lies_within_what_nodes_accept_leave_half_of_them_in_the_total(n):
    """Told as many dead as a node accepts, each other ones: those with enough shares of the mask key are at most half."""
    t = graph.threshold(n)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        cluster, _, _, reveal = opened(n)
        names = list(cluster.nodes)
        targets = names[1 : 1 + n // 2]
        dead = {name: set(rng.permutation([x for x in targets if x != name])[: n - t].tolist()) for name in names}
        given, _ = refusals(cluster, {name: told(reveal, dead[name]) for name in names})
        assert len(given) == n
        lost = [x for x in names if sum(x in dead[name] for name, _ in given) >= t]
        assert len(lost) <= n * (n - t) // t <= n // 2


def test_a_replayed_sum():
    """Answers, letters and shares of an earlier sum or run are of no use in another."""
    cluster, answers, _, reveal = opened(5)
    request, letters = cluster.hub.ask(b"q")
    for name in reveal.answered:
        cluster.hub.add_shares(name, cluster.nodes[name].reveal(reveal))
    cluster.hub.finish()
    following, new_letters = cluster.hub.ask(b"r")
    node = cluster.nodes[VICTIM]
    with pytest.raises(MaskingRefused, match="the envelope from node001 for SUM 2 is forged or of another sum"):
        node.mask(following, letters[VICTIM], b"r", answers[VICTIM])
    node.mask(following, new_letters[VICTIM], b"r", answers[VICTIM])
    with pytest.raises(MaskingRefused, match="SUM 1 is over"):
        node.mask(request, letters[VICTIM], b"q", answers[VICTIM])
    with pytest.raises(MaskingRefused, match="has gone on since"):
        node.reveal(reveal)
    with pytest.raises(MaskingRefused, match="did not sign"):
        node.reveal(reveal._replace(t=2))


def test_a_forgotten_run_that_is_begun_again_has_other_masks():
    """A node that lost its memory of a run must not use the masks of that run around other numbers."""
    masked = []
    for answer in (np.zeros(3), np.ones(3)):
        cluster = begin(3)  # the same secrets and the same run, without the state
        request, letters = cluster.hub.ask(b"q")
        masked.append(cluster.nodes[VICTIM].mask(request, letters[VICTIM], b"q", answer).limbs)
    difference = ring.decode(ring.subtract(masked[1], masked[0])[:, :3])
    assert not np.allclose(difference, 1.0)


def test_a_swapped_key():
    """The coordinator puts itself between two nodes: refused with pins, and without them unless it owns the whole identity."""
    nodes = make_nodes(4)
    roster = {name: node.hello("run") for name, node in nodes.items()}
    spy = MaskingNode("node001", b"spy" * 11).hello("run")
    for part in ("exchange", "verify", "identity", "signature"):
        with pytest.raises(MaskingRefused):
            nodes[VICTIM].begin({**roster, "node001": roster["node001"]._replace(**{part: getattr(spy, part)})})


def test_a_swapped_mask_key():
    """The mask key is in clear for the coordinator; another one in its place does not open the envelope."""
    cluster = begin(4)
    request, letters = cluster.hub.ask(b"q")
    letter = bytearray(letters[VICTIM])
    start = 4 + 3 * 48
    letter[start : start + 32] = MaskingNode("spy", b"spy" * 11).hello("run").exchange.tobytes()
    with pytest.raises(MaskingRefused, match="the envelope from node001 for SUM 1 is forged"):
        cluster.nodes[VICTIM].mask(request, bytes(letter), b"q", np.zeros(2))


def test_an_altered_total():
    """200 changes of one bit, and changes that a clever coordinator would try: all found by every node."""
    cluster = begin(4)
    rng = np.random.default_rng(0)
    answers = {name: {"n": np.array(i), "x": rng.normal(size=10)} for i, name in enumerate(cluster.nodes)}
    total = cluster.sum(b"q", answers)
    altered = []
    for _ in range(200):
        limbs = total.limbs.copy()
        limbs[rng.integers(3), rng.integers(limbs.shape[1])] ^= np.uint64(1) << np.uint64(rng.integers(64))
        altered.append(total._replace(limbs=limbs))
    doubled = total._replace(limbs=ring.subtract(total.limbs, ring.negate(total.limbs)))
    swapped = total._replace(limbs=total.limbs[:, [1, 0, *range(2, total.limbs.shape[1])]])
    fewer = total._replace(answered=total.answered[:3])
    renamed = total._replace(layout=total.layout.replace('\\"n\\"', '\\"m\\"'))
    assert renamed.layout != total.layout
    later = total._replace(t=2)
    for false in [*altered, doubled, swapped, fewer, renamed, later]:
        with pytest.raises(MaskingRefused):
            cluster.nodes[VICTIM].check_total(false, b"q")
    with pytest.raises(MaskingRefused, match="it was altered"):
        cluster.nodes[VICTIM].check_total(total, b"another question")
    for node in cluster.nodes.values():
        assert np.array_equal(node.check_total(total, b"q")["x"], decode_total(total)["x"])


def test_the_total_of_an_earlier_sum_in_place_of_a_later_one():
    cluster = begin(4)
    first = cluster.sum(b"one", dict.fromkeys(cluster.nodes, np.ones(2)))
    second = cluster.sum(b"two", dict.fromkeys(cluster.nodes, np.zeros(2)))
    with pytest.raises(MaskingRefused, match="it was altered"):
        cluster.nodes[VICTIM].check_total(second._replace(limbs=first.limbs), b"two")


def test_another_question_to_some():
    """One node is asked something else under the same number: the others do not help to unmask it, nor does it help them."""
    cluster = begin(5)
    request, letters = cluster.hub.ask(b"q")
    masked = {}
    for name, node in cluster.nodes.items():
        question = b"where is the row of Mr X" if name == VICTIM else b"q"
        masked[name] = node.mask(request, letters[name], question, np.zeros(2))
    with pytest.raises(MaskingRefused, match="node000 did not sign what it was asked"):  # an honest coordinator sees it
        cluster.hub.add_masked(VICTIM, masked[VICTIM])
    reveal = RevealRequest(1, request.cohort, np.stack([masked[name].signature for name in request.cohort]))
    given, reasons = refusals(cluster, dict.fromkeys(request.cohort, reveal))
    assert given == []
    assert len(reasons) == 5


JUNK = [None, 0, -1, 2**70, "x", b"x", (), ("node000",) * 4, np.zeros(3), [["node000"]], {"a": 1}]


def test_damaged_requests_end_in_a_refusal():
    """Random damage to what a node is sent: a refusal of ours, never another error and never an answer."""
    rng = np.random.default_rng(0)
    cluster = begin(4)
    request, letters = cluster.hub.ask(b"q")
    node, right = cluster.nodes[VICTIM], letters[VICTIM]
    for _ in range(100):
        flipped = bytearray(right)
        flipped[rng.integers(len(right))] ^= 1 << int(rng.integers(8))
        for letter in (bytes(flipped), right[: rng.integers(len(right))]):
            with pytest.raises(UnpooledError):
                MaskingNode(VICTIM, node._member._secret, state=node.to_bytes()).mask(
                    request, letter, b"q", np.zeros(2)
                )
    for field in request._fields:
        for junk in JUNK:
            with pytest.raises(UnpooledError):
                node.mask(request._replace(**{field: junk}), right, b"q", np.zeros(2))
    node.mask(request, right, b"q", np.zeros(2))
