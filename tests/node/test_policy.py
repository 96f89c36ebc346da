"""The node decides: each rule refuses what it should, says why, and lets the rest through."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "flower"))
from toy import Centre, single_totals, single_walks, total, wander

from unpooled import wire
from unpooled.client import Client
from unpooled.errors import BadParameter, DataNotFound
from unpooled.node import policy
from unpooled.node.ledger import Ledger, entries, verify
from unpooled.node.policy import Policy
from unpooled.node.questions import schema
from unpooled.node.rows import Source
from unpooled.node.site import Site


def ask(question, *, round=1, columns=("a", "b", "c"), **fields):
    head = {"kind": "ask", "run": "r1", "round": round, "seed": 0, "base": 0, "floor": 0}
    head |= {"ask": question.name, "options": {}, "steps": [], "columns": list(columns), "to": "zurich"}
    head |= {"schema": schema(question.name)} | fields
    return wire.pack(head, Centre(np.zeros(3)))


def site(tmp_path, rules, n=20):
    source = Source(Client("zurich", np.random.default_rng(0).normal(size=(n, 3))), ["a", "b", "c"])
    return Site("zurich", source, {}, policy=lambda: rules, ledger=Ledger(tmp_path / "ledger.jsonl"))


def refusal(site, message):
    return wire.unpack(site.reply(message)).head.get("refused")


REFUSED = {
    "question": (Policy(questions=["mixture.*"]), {}, "does not allow the question toy.total"),
    "model": (Policy(models=["mixture"]), {}, "does not allow the question toy.total"),
    "gather": (Policy(gather=False), {"question": single_totals}, "does not allow GATHER"),
    "gather of another": (Policy(gather=["*.local_centres"]), {"question": single_totals}, "does not allow GATHER"),
    "rows": (Policy(min_rows=21), {}, "fewer rows than the 21"),
    "column": (Policy(columns=["a", "b"]), {}, "no column 'c' that may be used"),
    "message": (Policy(max_bytes=10), {}, "more than the limit of 10"),
    "count": (Policy(min_rows_per_component=21), {}, "fewer than 21 rows"),
    "dry run": (Policy(dry_run=True), {}, "makes a dry run"),
}


@pytest.mark.parametrize(("rules", "fields", "why"), REFUSED.values(), ids=REFUSED)
def test_a_rule_refuses_with_its_reason_and_nothing_leaves(tmp_path, rules, fields, why):
    here = site(tmp_path, rules)
    reply = wire.unpack(here.reply(ask(**{"question": total, **fields})))
    assert why in reply.head["refused"]
    assert reply.value() is None
    lines = [e["kind"] for e in entries(tmp_path / "ledger.jsonl")]
    read = "message" not in why and rules.max_bytes > 10
    assert lines == (["sum", "refused"] if rules.dry_run else ["refused"] if read else [])


def test_gather_may_be_allowed_for_some_questions_only(tmp_path):
    (tmp_path / "policy.toml").write_text(
        'gather = ["*.single_totals"]\nmin_rows = 0\nmax_parameters_per_row = 1\ntrust_coordinator = true'
    )
    here = site(tmp_path, policy.read(tmp_path / "policy.toml"))
    assert refusal(here, ask(single_totals)) is None
    assert "does not allow GATHER" in refusal(here, ask(single_walks, round=2))


def test_without_a_reason_to_refuse_the_answer_leaves_after_its_line(tmp_path):
    here = site(tmp_path, Policy(min_rows=20, min_rows_per_component=20, gather=False))
    assert refusal(here, ask(total)) is None
    assert verify(tmp_path / "ledger.jsonl")[0] == 1


def test_rounds_of_a_day_are_counted(tmp_path):
    here = site(tmp_path, Policy(rounds_per_day=2))
    assert [bool(refusal(here, ask(total, round=r))) for r in (1, 2, 3)] == [False, False, True]


def test_columns_are_given_in_the_order_asked_for(tmp_path):
    here = site(tmp_path, Policy())
    a, b = (
        wire.unpack(here.reply(ask(total, columns=c, run=run))).value() for c, run in (("abc", "r1"), ("cab", "r2"))
    )
    np.testing.assert_array_equal(a.x[[2, 0, 1]], b.x)


def test_asked_twice_the_answer_is_the_same_and_stands_once_in_the_ledger(tmp_path):
    here = site(tmp_path, Policy())
    first, second = here.reply(ask(wander)), here.reply(ask(wander))
    assert first == second
    other = Site("zurich", here.source, dict(here.vault), ledger=here.ledger)
    other.vault.pop("r1/answer")
    np.testing.assert_array_equal(wire.unpack(other.reply(ask(wander))).value().drift, wire.unpack(first).value().drift)
    assert verify(tmp_path / "ledger.jsonl")[0] == 1


def test_a_broken_row_stays_out_of_the_reason(tmp_path):
    class Broken(Source):
        def open(self, columns):
            raise ValueError("could not convert 'Anna Muster, born 1950'")

    here = Site("zurich", Broken(Client("zurich", np.ones((3, 3))), ["a", "b", "c"]), {})
    assert "Anna" not in refusal(here, ask(total))


def test_the_file_is_read_strictly(tmp_path):
    path = tmp_path / "policy.toml"
    with pytest.raises(DataNotFound, match="node init"):
        policy.read(path)
    path.write_text(policy.TEMPLATE)
    assert policy.read(path).gather is False
    path.write_text("gathr = true")
    with pytest.raises(BadParameter, match="did you mean 'gather'"):
        policy.read(path)
    path.write_text('gather = "yes"')
    with pytest.raises(BadParameter, match="gather = 'yes' should be like false"):
        policy.read(path)
    path.write_text("min_rows = 5")
    assert policy.read(path) == policy.Policy(**{**policy.defaults(), "min_rows": 5}, network=True)
    path.write_text("[limits]\nmin_cuont = 5")
    with pytest.raises(BadParameter, match="did you mean 'min_count'"):
        policy.read(path)
    path.write_text('secure = "maybe"')
    with pytest.raises(BadParameter, match="required"):
        policy.read(path)
