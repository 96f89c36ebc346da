"""The ledger: one line an answer, sealed; any change shows; a crash loses nothing that left."""

import json
from dataclasses import replace

import pytest

from unpooled.errors import RunError
from unpooled.node.ledger import Ledger, Line, entries, explain, profile_line, verify


def line(round=1, digest="d", dry=False):
    what = [["n", [3], "float64"], ["x", [3, 2], "float64"]]
    return Line("run0", round, "unpooled.models.m.e_step", "sum", [], what, 9, 72, digest, dry)


@pytest.fixture
def path(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for r in range(1, 6):
        ledger.note(line(r))
    return tmp_path / "ledger.jsonl"


def test_every_answer_has_a_line_and_the_chain_holds(path):
    count, head = verify(path)
    assert count == 5
    assert verify(path, head) == (5, head)
    assert [e["round"] for e in entries(path)] == [1, 2, 3, 4, 5]


def test_the_same_answer_again_has_one_line_also_after_a_restart(path):
    ledger = Ledger(path)
    ledger.note(line(5))
    ledger.note(line(6))
    ledger.note(line(6))
    assert verify(path)[0] == 6


def test_another_answer_to_the_same_question_has_a_line_of_its_own(path):
    ledger = Ledger(path)
    ledger.note(line(5, digest="other"))
    assert verify(path)[0] == 6


CHANGES = {
    "a number changed": lambda rows: [rows[0], rows[1].replace('"numbers": 9', '"numbers": 8'), *rows[2:]],
    "a line taken out": lambda rows: [*rows[:2], *rows[3:]],
    "a line put in": lambda rows: [*rows[:2], rows[1], *rows[2:]],
    "two lines swapped": lambda rows: [rows[1], rows[0], *rows[2:]],
    "the first cut off": lambda rows: rows[1:],
    "not JSON": lambda rows: [*rows[:2], "hello\n", *rows[2:]],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_shows(path, change):
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(change(rows)))
    with pytest.raises(RunError, match="was changed: line"):
        verify(path)


def test_a_cut_end_shows_against_the_noted_head(path):
    head = verify(path)[1]
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert verify(path)[0] == 4
    with pytest.raises(RunError, match="cut off"):
        verify(path, head)


def test_a_line_torn_by_a_crash_goes_since_its_answer_never_left(path):
    with open(path, "a") as file:
        file.write('{"time": "2026-')
    ledger = Ledger(path)
    ledger.note(line(6))
    assert verify(path)[0] == 6


def test_the_last_day_is_counted_without_dry_runs(tmp_path):
    ledger = Ledger(tmp_path / "l")
    ledger.note(line(1))
    ledger.note(line(2, dry=True))
    assert ledger.today() == 1


def test_it_is_explained_in_words(path):
    text = explain(next(entries(path)))
    assert "9 numbers (72 bytes) left to be added to those of other nodes" in text
    assert "x (3 x 2)" in text
    assert json.loads(path.read_text().splitlines()[0])["before"] == "0" * 64


def test_masked_answers_and_checks_of_the_table_are_explained_without_their_wire_names(tmp_path):
    ledger = Ledger(tmp_path / "l")
    ledger.note(replace(line(1), masked=True))
    ledger.note(profile_line({"rows": 80}))
    masked, check = (explain(entry) for entry in entries(tmp_path / "l"))
    assert "left masked, to be added to those of other nodes" in masked
    assert "(3 x 2)" not in masked
    assert "left as a description of the table" in check
