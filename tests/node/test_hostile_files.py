"""Files that somebody made to hurt: each is refused in one sentence, before it takes memory, sets an attribute or ends in a traceback."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_attacks import STUDY, Coordinator
from test_ledger import line
from test_study import MIXTURE, MemoryTransport, certified, coordinator, make_sites, study_file

import unpooled as up
from unpooled import certificate, store, study, toml_text, tree
from unpooled.data.schema import Wanted
from unpooled.errors import DataNotFound, TooFewClients, UnpooledError
from unpooled.layers.followed import Followed
from unpooled.node import config, ledger, limits, policy, review
from unpooled.node.ledger import Ledger, entries
from unpooled.node.questions import Refused
from unpooled.node.source import FileTable, TableSource

HOSTILE = {
    "a key of 5,000 parts": "a" + ".a" * 5000 + " = 1",
    "the same in an inline table": "a = {a" + ' . "b c"' * 5000 + " = 1}",
    "the same in a header": "[a" + ".'a'" * 5000 + "]",
    "brackets without end": "a = " + "[" * 100_000,
    "digits without end": "a = " + "1" * 100_000,
    "more than anybody writes": "# " + "x" * toml_text.LARGEST,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_toml_that_would_fill_the_memory_is_refused(tmp_path, text):
    path = tmp_path / "file.toml"
    path.write_text(text)
    for read in (study.read, policy.read, config.read):
        with pytest.raises(UnpooledError, match="TOML"):
            read(path)


def test_toml_as_people_write_it_is_read():
    text = 'a.b = 1.5\npurpose = "e.g. ' + "a.b " * 100 + '"\n[x."y.z"]\nk = ["1.2.3.4", 5]'
    assert toml_text.loads(text)["x"]["y.z"]["k"] == ["1.2.3.4", 5]


GOOD = study_file(MIXTURE, secure=False).decode()
WRONG = {
    "a section that is a string": GOOD.replace("[study]", "layers = 'x'\n[study]", 1),
    "columns that are a date": "columns = 2020-01-01\n" + GOOD,
    "a model of no name": GOOD.replace('name = "GaussianMixture"', "name = ['GaussianMixture']"),
    "privacy without a budget": GOOD + "[privacy]\ndelta = 1e-6\n",
    "few rows below 0": study_file(MIXTURE, secure=False, min_rows_per_component=-1).decode(),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_study_of_wrong_parts_is_refused_in_one_sentence(text):
    with pytest.raises(UnpooledError):
        study.parse(text.encode())


@pytest.mark.parametrize("value", ["nan", "inf", "1" + "0" * 400])
def test_a_limit_that_is_no_number_lifts_nothing(tmp_path, value):
    path = tmp_path / "policy.toml"
    for line_of in ("min_rows_per_component = 5", "min_count = 5", "max_parameters_per_row = 0.33"):
        path.write_text(policy.TEMPLATE.replace(line_of, f"{line_of.split(' =')[0]} = {value}"))
        with pytest.raises(UnpooledError, match="should be"):
            policy.read(path)


def test_an_option_too_large_for_a_float_is_beyond_a_limit():
    with pytest.raises(Refused, match="allows at most 256"):
        limits.check("initialization.local_centres", {"k": 10**400}, None, limits.DEFAULTS, "basel")


def test_a_study_is_hashed_before_anything_in_it_is_read(tmp_path, monkeypatch):
    """A coordinator that knows the name of an approved study sent another file under it, and the node read that first."""
    approved = study.parse(STUDY)
    coordinator = Coordinator(tmp_path, studies=f'["{approved.digest}"]')
    seen = []
    parse = study.parse
    monkeypatch.setattr(study, "parse", lambda content, *where: seen.append(content) or parse(content, *where))
    hostile = {"study file": b"a" + b".a" * 3000 + b" = 1"}
    reply = coordinator.ask("initialization.look", letters=hostile, study=approved.digest)
    assert "is not the one that it names" in reply.head["refused"]
    assert seen == []
    again = coordinator.ask("initialization.look", letters={"study file": STUDY}, study=approved.digest, round=1)
    assert "refused" not in again.head, "the false file is not kept for the run"


@pytest.mark.parametrize("name", ["__dict__", "__weakref__", "_repr_html_", "personal_", "fit"])
def test_a_model_file_sets_learned_attributes_alone(tmp_path, name):
    rows = {"a": np.random.default_rng(0).normal(size=(60, 2))}
    up.GaussianMixture(1, random_state=0, max_iter=1, tol=0.0).fit(rows).save(tmp_path)
    saved = store.read(tmp_path / "model.zip")
    fitted = {**saved["fitted"], name: {"a": 1}}
    store.write(tmp_path / "model.zip", {**saved, "fitted": fitted})
    with pytest.raises(DataNotFound, match="which no fit sets"):
        up.load(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 100_000, "[]", "null"])
def test_a_history_or_a_ledger_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "ledger.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(UnpooledError):
        list(entries(path))


@pytest.mark.parametrize(
    ("field", "value"), [("time", 5), ("round", []), ("question", {}), ("mu2", "much"), ("time", "now")]
)
def test_a_sealed_line_of_wrong_types_is_no_line_of_a_ledger(tmp_path, field, value):
    from unpooled.node.ledger import _hash

    path = tmp_path / "ledger.jsonl"
    Ledger(path).note(line(1))
    entry = json.loads(path.read_text())
    entry[field] = value
    entry["hash"] = _hash(entry)
    path.write_text(json.dumps(entry) + "\n")
    with pytest.raises(UnpooledError, match="not a line of a ledger"):
        Ledger(path).today()


@pytest.mark.parametrize(("key", "value"), [("question", [1]), ("asked", np.zeros(3)), ("total", None), ("answers", 5)])
def test_a_kept_total_of_wrong_parts_is_a_finding(tmp_path, key, value):
    run, ledgers = certified(tmp_path, secure=False)
    path = sorted((run / "totals").glob("*.zip"))[1]
    store.write(path, {**store.read(path), key: value})
    assert [f for f in certificate.verify(run, ledgers) if f.wrong]
    path.rename(path.with_stem("notes"))
    assert [f for f in certificate.verify(run, ledgers) if f.wrong]


class Liar(Followed):
    """A coordinator of an unmasked study that tells the nodes totals which no rows have."""

    def __init__(self, inner, lie):
        super().__init__(inner, None)
        self.lie = lie

    def _proof(self, total):
        return {**super()._proof(total), "raw": self.lie(total)}


LIES = {
    "not a number": lambda total: tree.map(lambda a: np.full(np.shape(a), np.nan), total),
    "fewer rows than none": lambda total: tree.map(lambda a: -np.abs(np.asarray(a, float)) - 1, total),
    "other shapes": lambda total: tree.map(lambda a: np.zeros((3, 3, 3)), total),
    "something else": lambda total: {"a": 1.0},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_total_that_no_sum_can_be_does_not_reach_the_model(tmp_path, lie):
    approved = study.parse(study_file(MIXTURE, secure=False))
    remote = coordinator(MemoryTransport(make_sites(tmp_path, approved)), approved).inner
    with pytest.raises(TooFewClients):
        approved.estimator().fit(Liar(remote, lie))
    reasons = {refusal.reason for refusal in remote.journal.refusals}
    assert all("should" in reason or "holds" in reason for reason in reasons), reasons


def half_of_a_parquet():
    from io import BytesIO

    out = BytesIO()
    pd.DataFrame({"age": np.arange(50.0)}).to_parquet(out)
    return out.getvalue()[: out.tell() // 2]


TABLES = {
    "latin.csv": "id,größe\n1,2\n".encode("latin-1"),
    "rows.csv.gz": b"\x1f\x8b" + bytes(30),
    "rows.parquet": half_of_a_parquet(),
    "zeros.csv": bytes(100),
    "header.csv": b"age,bmi\n",
}


def read(path, chunk_rows):
    source = TableSource("basel", FileTable(path), chunk_rows=chunk_rows)
    return list(source.open(source.columns, Wanted()).parts())


@pytest.mark.parametrize("chunk_rows", [0, 10])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_cannot_be_read_is_one_sentence_for_its_owner(tmp_path, name, chunk_rows):
    (tmp_path / name).write_bytes(TABLES[name])
    with pytest.raises(UnpooledError):
        read(tmp_path / name, chunk_rows)


def test_a_table_of_a_header_alone_has_no_profile(tmp_path):
    (tmp_path / "rows.csv").write_text("age,bmi\n")
    with pytest.raises(UnpooledError, match="no rows"):
        TableSource("basel", FileTable(tmp_path / "rows.csv")).profile(["age"], Wanted(), 5)


# ---- texts that are shown ----

SHOWN = {
    "a title that hides what follows": ('title = "Heart"', 'title = "Heart\\u001b[8m"'),
    "a purpose that reads backwards": ("[participants]", 'purpose = "no \\u202Ewarnings"\n[participants]'),
    "a column that moves the cursor": ('columns = ["age"', 'columns = ["age\\u0008"'),
    "a parameter that clears the screen": ('init_params = "random"', 'init_params = "\\u001b[2J"'),
}


@pytest.mark.parametrize(("before", "after"), SHOWN.values(), ids=SHOWN)
def test_a_study_cannot_hide_lines_of_its_review(before, after):
    assert before in GOOD
    with pytest.raises(UnpooledError, match="cannot be printed"):
        study.parse(GOOD.replace(before, after, 1).encode())


def test_a_purpose_of_several_lines_looks_like_one():
    text = GOOD.replace("[participants]", 'purpose = """\nTo learn.\n! nothing\n"""\n[participants]', 1)
    found = review.Review(study.parse(text.encode()), [], [])
    assert "Purpose To learn. ! nothing" in review.explain(found)
    assert not [shown for shown in review.explain(found) if shown.startswith("!")]


def test_a_node_s_refusal_is_shown_as_it_can_be_printed(tmp_path):
    approved = study.parse(study_file(MIXTURE, secure=False))
    sites = make_sites(tmp_path, approved)
    for site in sites:
        site._answer = lambda *given: (_ for _ in ()).throw(Refused("no\x1b[2K\nround 9: all is well"))
    said = []
    remote = coordinator(MemoryTransport(sites), approved, say=said.append)
    with pytest.raises(TooFewClients):
        approved.estimator().fit(remote)
    assert any("refused: no?[2K round 9" in text for text in said)


def test_a_coordinator_s_words_cannot_hide_lines_of_the_ledger(tmp_path):
    coordinator = Coordinator(tmp_path)
    coordinator.ask("initialization.look", ask="\x1b[2J\x1b[8m\n2026-01-01 nothing left")
    (entry,) = entries(coordinator.ledger)
    shown = ledger.explain(entry)
    assert shown.isprintable()
    assert "refused ?[2J" in shown
