"""Everything a node refuses, each with its reason, and that it goes on afterwards as if it had not been asked."""

import numpy as np
import pytest
from masking_cluster import begin, make_nodes

from unpooled.errors import BadParameter, MaskingRefused, TooFewClients
from unpooled.secure import MaskingCoordinator, MaskingNode, fingerprint
from unpooled.secure.messages import Keys, MaskRequest

QUESTION = b"question"


class Scene:
    """A run of six in which SUM 1 is done and SUM 2 was answered by all; node000 is the one that is tried."""

    def __init__(self, n=6):
        self.cluster = begin(n)
        self.values = {name: np.arange(4.0) + i for i, name in enumerate(self.cluster.nodes)}
        self.cluster.sum(b"first", self.values)
        self.request, self.letters = self.cluster.hub.ask(QUESTION)
        self.names = list(self.cluster.nodes)
        self.node = self.cluster.nodes[self.names[0]]

    def mask(self, request=None, letter=None, question=QUESTION, answer=None, name=None):
        name = name or self.node.name
        answer = self.values[name] if answer is None else answer
        letter = self.letters[name] if letter is None else letter
        return self.cluster.nodes[name].mask(request or self.request, letter, question, answer)

    def close(self):
        for name in self.names:
            self.cluster.hub.add_masked(name, self.mask(name=name))
        return self.cluster.hub.close()

    def without(self, reveal, *names):
        """A request for shares as if some had not answered."""
        kept = [i for i, name in enumerate(reveal.answered) if name not in names]
        return reveal._replace(answered=tuple(reveal.answered[i] for i in kept), signatures=reveal.signatures[kept])


@pytest.fixture
def scene():
    return Scene()


def flipped(content, at):
    """Bytes with one bit changed."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# ---- exchange A ----


@pytest.mark.parametrize("request_", [{"t": 2}, None, "SUM 2"])
def test_a_request_that_names_no_sum(scene, request_):
    before = scene.mask()
    with pytest.raises(MaskingRefused, match="without saying in which sum"):
        scene.node.mask(request_, scene.letters["node000"], QUESTION, scene.values["node000"])
    np.testing.assert_array_equal(scene.mask().limbs, before.limbs)


def test_the_same_sum_with_another_question(scene):
    before = scene.mask()
    with pytest.raises(MaskingRefused, match="SUM 2 was asked before with another question or cohort"):
        scene.mask(question=b"another")
    again = scene.mask()
    assert np.array_equal(before.limbs, again.limbs)
    assert np.array_equal(before.envelopes.sealed, again.envelopes.sealed)


def test_the_same_sum_with_another_cohort(scene):
    scene.mask()
    fewer = scene.request._replace(cohort=scene.request.cohort[:5])
    with pytest.raises(MaskingRefused, match="SUM 2 was asked before with another question or cohort"):
        scene.mask(request=fewer)


def test_the_same_sum_with_another_answer(scene):
    """The same masks around two answers would tell their difference."""
    scene.mask()
    with pytest.raises(MaskingRefused, match="the answer of node000 to SUM 2 has changed"):
        scene.mask(answer=np.arange(4.0) + 1e-20)


def test_a_sum_that_is_over(scene):
    scene.mask()
    with pytest.raises(MaskingRefused, match="SUM 1 is over: node000 has answered SUM 2"):
        scene.mask(request=scene.request._replace(t=1))


def test_a_cohort_below_the_least(scene):
    with pytest.raises(MaskingRefused, match="2 nodes are in the cohort of SUM 2, min_cohort of node000 is 3"):
        scene.mask(request=scene.request._replace(cohort=("node000", "node001")))


def test_too_few_neighbours_in_the_cohort(scene):
    few = scene.request._replace(cohort=scene.request.cohort[:4])
    with pytest.raises(MaskingRefused, match="4 holders of node000's shares are in the cohort of SUM 2, 5 are needed"):
        scene.mask(request=few)


def test_a_cohort_without_the_node_itself_or_with_a_stranger(scene):
    with pytest.raises(MaskingRefused, match="node000 is not in the cohort of SUM 2"):
        scene.mask(request=scene.request._replace(cohort=scene.request.cohort[1:]))
    with pytest.raises(MaskingRefused, match="zurich is not in the roster"):
        scene.mask(request=scene.request._replace(cohort=(*scene.request.cohort, "zurich")))


@pytest.mark.parametrize(
    "cohort", [("node001", "node000", "node002"), ("node000", "node000", "node001"), 7, (1, 2, 3), None]
)
def test_cohorts_that_are_no_names_in_order(scene, cohort):
    with pytest.raises(MaskingRefused, match="the cohort should be names in order"):
        scene.mask(request=scene.request._replace(cohort=cohort))


@pytest.mark.parametrize("t", [0, -1, "2", 2.0, True, None])
def test_numbers_of_sums_that_are_none(scene, t):
    with pytest.raises(MaskingRefused, match="a sum is numbered from 1"):
        scene.mask(request=scene.request._replace(t=t))


@pytest.mark.parametrize("at", [4, 35, 36, 80, 117, 300])
def test_a_forged_envelope(scene, at):
    with pytest.raises(MaskingRefused, match=r"the envelope from node00. for SUM 2 is forged"):
        scene.mask(letter=flipped(scene.letters["node000"], at))
    scene.mask()  # the right letter is still answered


def test_a_cut_letter(scene):
    for letter in (b"", scene.letters["node000"][:-1], scene.letters["node000"] + b"x", b"\xff" * 600):
        with pytest.raises(MaskingRefused, match="cut or damaged"):
            scene.mask(letter=letter)


def test_envelopes_of_another_sum_or_for_somebody_else(scene):
    other = scene.letters["node001"]
    with pytest.raises(MaskingRefused, match="forged or of another sum"):
        scene.mask(letter=other)
    with pytest.raises(MaskingRefused, match="forged or of another sum"):
        scene.mask(request=scene.request._replace(t=3))


def test_members_that_change_within_the_run(scene):
    with pytest.raises(MaskingRefused, match="the members whose parts make up the tag key have changed"):
        scene.mask(request=scene.request._replace(members=scene.request.members[1:]))


def test_the_first_letter_must_hold_the_tag_key():
    cluster = begin(4)
    request, letters = cluster.hub.ask(QUESTION)
    node, letter = cluster.nodes["node000"], letters["node000"]
    with pytest.raises(MaskingRefused, match="0 parts of the tag key, 3 are needed"):
        node.mask(request, bytes(4) + letter[4 + 3 * 48 :], QUESTION, np.zeros(2))
    with pytest.raises(MaskingRefused, match="the part of the tag key from node002 is forged"):
        node.mask(request, flipped(letter, 4 + 48 + 3), QUESTION, np.zeros(2))
    with pytest.raises(MaskingRefused, match="1 nodes make up the tag key, min_cohort of node000 is 3"):
        node.mask(request._replace(members=("node001",)), letter, QUESTION, np.zeros(2))


# ---- exchange B ----


def test_shares_are_given_once_for_one_set_of_nodes(scene):
    reveal = scene.close()
    first = scene.node.reveal(reveal)
    with pytest.raises(MaskingRefused, match="the shares of SUM 2 were given for another set of nodes"):
        scene.node.reveal(scene.without(reveal, "node005"))
    assert np.array_equal(scene.node.reveal(reveal).shares, first.shares)


def test_shares_without_an_answer():
    scene = Scene()
    for name in scene.names[1:]:
        scene.cluster.hub.add_masked(name, scene.mask(name=name))
    with pytest.raises(MaskingRefused, match="node000 gave no masked answer to SUM 2"):
        scene.node.reveal(scene.cluster.hub.close())


def test_shares_when_the_node_is_said_to_be_lost(scene):
    reveal = scene.close()
    with pytest.raises(MaskingRefused, match="node000 is said not to have answered SUM 2, but it did"):
        scene.node.reveal(scene.without(reveal, "node000"))


def test_too_few_answered(scene):
    reveal = scene.close()
    with pytest.raises(MaskingRefused, match="2 nodes answered SUM 2, min_cohort of node000 is 3"):
        scene.node.reveal(scene.without(reveal, *scene.names[2:]))
    with pytest.raises(MaskingRefused, match="4 holders of node000's shares answered SUM 2, 5 are needed"):
        scene.node.reveal(scene.without(reveal, *scene.names[4:]))


def test_a_least_cohort_holds_even_if_others_are_told_otherwise():
    """7 of 10 are said to have answered; telling each node of another three lost, a total of 6 could be made."""
    cluster = begin(10, min_cohort=7)
    names = list(cluster.nodes)
    values = dict.fromkeys(names, np.zeros(2))
    with pytest.raises(TooFewClients, match="a total is safe for 6 nodes only, 7 are needed"):
        cluster.sum(b"one", values, lost_a=names[:3])
    cluster.hub.min_cohort = 3  # a coordinator that does not care
    with pytest.raises(MaskingRefused, match="6 nodes would be left in SUM 1"):
        cluster.reveal()
    assert len(begin(10, min_cohort=7).sum(b"one", values, lost_a=names[:2]).answered) == 8


def test_somebody_outside_the_cohort_answered(scene):
    reveal = scene.close()
    more = reveal._replace(
        answered=(*reveal.answered, "zurich"), signatures=np.concatenate([reveal.signatures] * 2)[:7]
    )
    with pytest.raises(MaskingRefused, match="somebody outside the cohort of SUM 2"):
        scene.node.reveal(more)


def test_alive_and_dead_at_once(scene):
    reveal = scene.close()
    twice = reveal._replace(
        answered=(*reveal.answered, "node005"), signatures=np.concatenate([reveal.signatures] * 2)[:7]
    )
    with pytest.raises(MaskingRefused, match="should be names in order, each once"):
        scene.node.reveal(twice)


def test_signatures_that_are_missing_cut_or_of_something_else(scene):
    reveal = scene.close()
    with pytest.raises(MaskingRefused, match="the signatures should be 6 rows of 64 bytes"):
        scene.node.reveal(reveal._replace(signatures=reveal.signatures[:5]))
    with pytest.raises(MaskingRefused, match="node001 did not sign what node000 was asked in SUM 2"):
        scene.node.reveal(reveal._replace(signatures=reveal.signatures[[0, 0, 2, 3, 4, 5]]))


def test_a_question_whose_total_was_shown_for_other_nodes(scene):
    """The difference of the two totals would be one node's share."""
    reveal = scene.close()
    for name in scene.names:
        scene.cluster.hub.add_shares(name, scene.cluster.nodes[name].reveal(reveal))
    scene.cluster.hub.finish()
    scene.cluster.hub._shown.clear()  # a coordinator that does not care
    with pytest.raises(MaskingRefused, match="was shown before for other nodes"):
        scene.cluster.sum(QUESTION, scene.values, lost_a=["node003"])


def test_a_question_may_be_repeated_among_the_same_nodes(scene):
    reveal = scene.close()
    for name in scene.names:
        scene.cluster.hub.add_shares(name, scene.cluster.nodes[name].reveal(reveal))
    first = scene.cluster.hub.finish()
    second = scene.cluster.sum(QUESTION, scene.values)
    assert np.array_equal(first.limbs[:, :-2], second.limbs[:, :-2])


# ---- exchanges 0 and 1 ----


def roster_of(nodes, run="run"):
    return {name: node.hello(run) for name, node in nodes.items()}


def test_another_run():
    node = MaskingNode("basel", bytes(32))
    node.hello("run")
    with pytest.raises(MaskingRefused, match="basel keeps the keys of another run"):
        node.hello("other")


def test_steps_out_of_order():
    node = MaskingNode("basel", bytes(32))
    with pytest.raises(MaskingRefused, match="was not asked for its keys"):
        node.begin({})
    node.hello("run")
    with pytest.raises(MaskingRefused, match="has not seen the roster"):
        node.envelopes(1)
    with pytest.raises(MaskingRefused, match="has not seen the roster"):
        node.mask(MaskRequest(1, ("basel",), ("basel",)), b"", QUESTION, 1.0)


def test_a_roster_that_is_too_small_or_lacks_the_node():
    nodes = make_nodes(4)
    roster = roster_of(nodes)
    node = nodes["node000"]
    with pytest.raises(MaskingRefused, match="2 nodes are in the roster, min_cohort of node000 is 3"):
        node.begin({name: roster[name] for name in ("node000", "node001")})
    with pytest.raises(MaskingRefused, match="does not hold the keys that node000 gave"):
        node.begin({name: roster[name] for name in list(roster)[1:]})
    with pytest.raises(MaskingRefused, match="does not hold the keys that node000 gave"):
        node.begin({**roster, "node000": MaskingNode("node000", b"x" * 32).hello("run")})


def test_a_roster_that_changes():
    nodes = make_nodes(4)
    roster = roster_of(nodes)
    first = nodes["node000"].begin(roster)
    with pytest.raises(MaskingRefused, match="the roster of this run has changed"):
        nodes["node000"].begin({name: roster[name] for name in list(roster)[:3]})
    assert np.array_equal(nodes["node000"].begin(roster).envelopes.sealed, first.envelopes.sealed)


def test_keys_that_are_not_signed_by_their_node():
    nodes = make_nodes(4)
    roster = roster_of(nodes)
    own = MaskingNode("node001", b"x" * 32).hello("run")
    swapped = roster["node001"]._replace(exchange=own.exchange, verify=own.verify)
    with pytest.raises(MaskingRefused, match="the keys of node001 are not signed by its own key"):
        nodes["node000"].begin({**roster, "node001": swapped})
    old = make_nodes(4, seed=0)["node001"].hello("an earlier run")
    with pytest.raises(MaskingRefused, match="the keys of node001 are not signed by its own key"):
        nodes["node000"].begin({**roster, "node001": old})


def test_keys_of_low_order_in_the_roster():
    nodes = make_nodes(4)
    roster = roster_of(nodes)
    low = roster["node001"]._replace(exchange=np.zeros(32, np.uint8))
    with pytest.raises(MaskingRefused, match="the key sent for node001 is not a usable X25519 key"):
        nodes["node000"].begin({**roster, "node001": low})
    nodes["node000"].begin(roster)  # nothing of the forged roster was kept


def test_one_node_under_two_names():
    nodes = make_nodes(4)
    roster = roster_of(nodes)
    roster["node009"] = roster["node001"]
    with pytest.raises(MaskingRefused, match="two names in the roster have the same key"):
        nodes["node000"].begin(roster)


@pytest.mark.parametrize("damaged", [None, ("a",) * 4, Keys(np.zeros(31, np.uint8), *[np.zeros(32, np.uint8)] * 3)])
def test_damaged_keys(damaged):
    nodes = make_nodes(4)
    with pytest.raises(MaskingRefused, match=r"node001.*damaged"):
        nodes["node000"].begin({**roster_of(nodes), "node001": damaged})


@pytest.mark.parametrize("roster", [None, 3, "x", [1, 2], {1: None, 2: None, 3: None}, {}])
def test_damaged_rosters(roster):
    node = MaskingNode("node000", bytes(32))
    node.hello("run")
    with pytest.raises(MaskingRefused, match="the roster"):
        node.begin(roster)


def test_pinned_peers():
    nodes = make_nodes(4)
    roster = roster_of(nodes)
    pins = {name: fingerprint(keys.identity.tobytes()) for name, keys in roster.items()}
    secret = b"s" * 32

    def pinned(**changes):
        node = MaskingNode("node000", secret, pins={**pins, **changes})
        return node, {**roster, "node000": node.hello("run")}

    node, with_mine = pinned()
    assert node.pinned
    node.begin(with_mine)
    node, with_mine = pinned(node002="SHA256:somebody")
    with pytest.raises(MaskingRefused, match="the key of node002 is not the pinned one"):
        node.begin(with_mine)
    stranger = MaskingNode("zurich", b"z" * 32).hello("run")
    node, with_mine = pinned()
    with pytest.raises(MaskingRefused, match="zurich is not among the pinned peers"):
        node.begin({**with_mine, "zurich": stranger})


def test_parameters():
    for make in (
        lambda: MaskingNode("basel", bytes(32), min_cohort=2),
        lambda: MaskingCoordinator("run", min_cohort=2),
    ):
        with pytest.raises(BadParameter, match="min_cohort=2"):
            make()
    with pytest.raises(BadParameter, match="a secret of 8 bytes can be guessed"):
        MaskingNode("basel", b"password")


# ---- the coordinator's own checks ----


def test_the_coordinator_refuses_damaged_messages(scene):
    hub, masked = scene.cluster.hub, scene.mask()
    cases = {
        "should be 3 x 6 limbs": masked._replace(limbs=masked.limbs[:, :3]),
        "the description of a masked answer is broken": masked._replace(layout="{}"),
        "did not sign": masked._replace(signature=np.zeros(64, np.uint8)),
        "the envelopes of node000 should be": masked._replace(envelopes=masked.envelopes._replace(sealed=masked.limbs)),
        "instead of a masked answer": None,
    }
    for reason, message in cases.items():
        with pytest.raises(MaskingRefused, match=reason):
            hub.add_masked("node000", message)
    with pytest.raises(MaskingRefused, match="did not sign"):
        hub.add_masked("node001", masked)
    with pytest.raises(MaskingRefused, match="zurich is not in the roster"):
        hub.add_masked("zurich", masked)


def test_the_coordinator_refuses_an_answer_from_outside_the_cohort():
    cluster = begin(6)
    values = {name: np.arange(4.0) for name in cluster.nodes}
    cluster.sum(b"first", values, lost_a=("node005",))
    request, answers = cluster.answers(QUESTION, values)
    assert "node005" not in request.cohort
    with pytest.raises(MaskingRefused, match=r"node005 is not in the cohort of SUM 2"):
        cluster.hub.add_masked("node005", answers["node000"])


def test_the_coordinator_refuses_cut_shares(scene):
    reveal = scene.close()
    shares = scene.node.reveal(reveal)
    with pytest.raises(MaskingRefused, match="the shares from node000 should be 6 rows of 33 bytes"):
        scene.cluster.hub.add_shares("node000", shares._replace(shares=shares.shares[:, :32]))
    assert scene.cluster.hub.add_shares("node000", shares._replace(t=1)) is False
    with pytest.raises(MaskingRefused, match="the roster of this run is closed"):
        scene.cluster.hub.add_keys("zurich", MaskingNode("zurich", b"z" * 32).hello("run"))
