"""A node that is sent what no honest coordinator sends: one sentence, no other answer than the honest one, and nothing has moved.

Requests of honest runs are changed at random, from a seed: fields of wrong types, huge and nested values, NaN, arrays of other shapes,
letters and totals of other rounds, flipped bits, requests of the past and of the future (`hostile_coordinator`).
"""

import time

import numpy as np
import pytest
from hostile_coordinator import Sent, attempts, recorded, victim
from test_attacks import Coordinator
from test_study import MIXTURE, masked_study, study_file

from unpooled import study, tree, wire
from unpooled.models.initialization import Centre
from unpooled.node.ledger import entries

MAY_MOVE = ("begin", "study", "identity", "secret", "total-")  # in the vault, with a request that is refused
CRASHED = "at the node: its log says more"

STUDIES = {"masked": masked_study(), "plain": study.parse(study_file(MIXTURE, secure=False))}


@pytest.fixture(scope="module", params=STUDIES)
def run(request, tmp_path_factory):
    """(a study, every request of its honest run to one node)."""
    approved = STUDIES[request.param]
    return approved, [sent for sent in recorded(tmp_path_factory.mktemp(request.param), approved) if "ask" in sent.head]


def parts(sent: Sent):
    """The three parts of an honest request."""
    return sent.message(), sent.private, wire.pack_letters(sent.letters)


def numbers(reply: bytes):
    """(question, round, numbers) of an answer; of a masked one the masked numbers without their tag."""
    parcel = wire.unpack(reply)
    up = parcel.value()
    return parcel.head["ask"], parcel.head["round"], up.limbs[:, :-2] if hasattr(up, "limbs") else up


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two parts of an answer are the same, masked ones to the bit; a total without a tag may be off in its last digits."""
    return np.array_equal(a, b) if a.dtype.kind == "u" else np.allclose(a, b, rtol=1e-6, atol=1e-9)


def is_an_honest_answer(reply: bytes, honest: list[Sent]) -> bool:
    """Whether an answer over rows is what the node answered in the honest run."""
    asked, round, up = numbers(reply)
    if asked.startswith("secure."):  # keys, envelopes and shares: no rows
        return True
    told = next(sent.reply for sent in honest if sent.head["ask"] == asked and sent.head["round"] == round)
    pairs = zip(tree.leaves(up), tree.leaves(numbers(told)[2]), strict=True)
    return all(same(np.asarray(a), np.asarray(b)) for a, b in pairs)


def is_in_ledger(folder, head) -> bool:
    """Whether the ledger has an answer to this question in this round; the very same answer stands there once."""
    lines = [e for e in entries(folder / "ledger.jsonl") if e["kind"] != "refused"]
    return any((e["question"], e["round"]) == (head["ask"], head["round"]) for e in lines)


def attack(folder, run, i: int, n: int, seed: int) -> int:
    """Send `n` hostile requests in place of request `i`; how many were refused."""
    approved, honest = run
    site = victim(folder, approved, honest[i])
    refused = 0
    for kind, message in attempts(honest, i, n, seed):
        before, lines = dict(site.vault), len(list(entries(folder / "ledger.jsonl")))
        began = time.monotonic()
        head = wire.unpack(reply := site.reply(*message)).head
        assert time.monotonic() - began < 10, kind
        new = list(entries(folder / "ledger.jsonl"))[lines:]
        if "refused" not in head:
            assert "ask" not in head or is_in_ledger(folder, head), kind
            assert "ask" not in head or is_an_honest_answer(reply, honest), kind
            site.studies.stop()
            site = victim(folder, approved, honest[i])
            continue
        refused += 1
        assert 0 < len(head["refused"]) <= 500
        assert head["refused"].isprintable()
        assert CRASHED not in head["refused"], (kind, head["refused"])
        assert all(entry["kind"] == "refused" for entry in new)
        moved = {key for key in before.keys() | site.vault.keys() if before.get(key) != site.vault.get(key)}
        assert not [key for key in moved if not key.rpartition("/")[2].startswith(MAY_MOVE)], (kind, head["refused"])
    reply = site.reply(*parts(honest[i]))
    site.studies.stop()
    assert "refused" not in wire.unpack(reply).head, wire.unpack(reply).head["refused"]
    assert is_an_honest_answer(reply, honest), "the honest request is answered as if nothing had happened"
    return refused


def test_hostile_requests_move_nothing(tmp_path, run):
    refused = sum(attack(tmp_path / "victim", run, i, n=14, seed=0) for i in range(len(run[1])))
    assert refused > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_hostile_requests_move_nothing(tmp_path, run, seed):
    for i in range(len(run[1])):
        attack(tmp_path / "victim", run, i, n=150, seed=seed)


# ---- what was found, one by one ----


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """(a masked study, every request of its honest run to one node)."""
    approved = STUDIES["masked"]
    return approved, [sent for sent in recorded(tmp_path_factory.mktemp("masked"), approved) if "ask" in sent.head]


def reply_to(site, sent: Sent, **changes):
    """The head of the reply to a request with other parts."""
    return wire.unpack(site.reply(*parts(sent._replace(**changes)))).head


def first(sent: list[Sent], question: str) -> Sent:
    """The first request of a question."""
    return next(s for s in sent if s.head["ask"] == question)


def test_shares_that_are_refused_leave_no_note_of_who_was_to_be_in_the_total(tmp_path, masked):
    """One request with a false list of nodes kept this study from being run with the right ones, for ever."""
    approved, sent = masked
    reveal = first(sent, "secure.reveal")
    site = victim(tmp_path / "victim", approved, reveal)
    fewer = reveal.down._replace(answered=reveal.down.answered[:2], signatures=reveal.down.signatures[:2])
    forged = reveal.down._replace(signatures=reveal.down.signatures * 0)
    for down in (fewer, forged):
        assert "refused" in reply_to(site, reveal, down=down)
        assert not [key for key in site.vault if key.startswith("cohorts")]
    assert "refused" not in reply_to(site, reveal)
    assert [key for key in site.vault if key.startswith("cohorts")]


@pytest.mark.parametrize("which", STUDIES)
def test_a_round_is_noted_when_it_is_answered(tmp_path, which):
    """A question that started from a state which the node does not have was noted and refused, and the honest one then was another."""
    approved = STUDIES[which]
    sent = [s for s in recorded(tmp_path / "run", approved) if "ask" in s.head]
    asked = first(sent, "mixture.e_step")
    site = victim(tmp_path / "victim", approved, asked)
    head = {**asked.head, "base": 1, "floor": 0}
    assert "no longer has its state after round 1" in reply_to(site, asked, head=head, private="{}")["refused"]
    assert "refused" not in reply_to(site, asked)
    assert "was asked before" in reply_to(site, asked, head=head, private="{}")["refused"]


@pytest.mark.parametrize("name", [None, {}, 3, ["r"], np.zeros(3)], ids=["None", "dict", "int", "list", "array"])
def test_keys_for_a_run_that_is_no_name_are_refused(tmp_path, masked, name):
    """Keys were made for `{}`, and an array ended in a traceback."""
    approved, sent = masked
    keys = first(sent, "secure.keys")
    site = victim(tmp_path / "victim", approved, keys)
    assert "should be a str" in reply_to(site, keys, down=name)["refused"]


@pytest.mark.parametrize(("option", "value"), [("cohort", 3), ("members", None), ("t", "1"), ("t", 10**400)])
def test_masks_over_what_is_no_list_of_nodes_are_refused_in_one_sentence(tmp_path, masked, option, value):
    approved, sent = masked
    asked = first(sent, "initialization.look")
    ((step, options),) = asked.head["steps"]
    site = victim(tmp_path / "victim", approved, asked)
    refused = reply_to(site, asked, head={**asked.head, "steps": [[step, {**options, option: value}]]})["refused"]
    assert CRASHED not in refused
    assert "refused" not in reply_to(site, asked)


def test_a_false_total_goes_with_the_request_that_it_came_with(tmp_path):
    """Without masks nobody can check a total: one that was sent with a refused request stayed, and the study could not go on."""
    approved = STUDIES["plain"]
    sent = [s for s in recorded(tmp_path / "run", approved) if "ask" in s.head]
    asked = [s for s in sent if s.head["ask"] == "mixture.e_step"][1]
    totals = wire.unpack(asked.letters["study"]).value()
    false = {round: tuple(part._replace(n=np.add(part.n, [1, 0])) for part in total) for round, total in totals.items()}
    site = victim(tmp_path / "victim", approved, asked)
    letters = {**asked.letters, "study": wire.pack({}, false)}
    other = asked.down[0]._replace(means=asked.down[0].means + 1.0)
    assert "is not what the study sends" in reply_to(site, asked, letters=letters, down=(other,))["refused"]
    assert "refused" not in reply_to(site, asked)


def test_a_question_that_fails_on_what_came_down_says_so_in_one_sentence(tmp_path):
    """A coordinator that is trusted may ask anything: what does not fit ended in the name of a Python error."""
    asker = Coordinator(tmp_path, trust_coordinator="true")
    refused = asker.ask("initialization.spread", Centre(np.zeros(7))).head["refused"]
    assert CRASHED not in refused
    assert "cannot answer initialization.spread as it was asked" in refused
    assert [entry["kind"] for entry in entries(asker.ledger)] == ["refused"]
