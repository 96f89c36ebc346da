"""A node's page: what waits, its rehearsal, the buttons, the budget and the ledger in words."""

import json
import re
import time
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")

from place import STUDY, ask, make_node, node_server

from unpooled import study
from unpooled.cli import main
from unpooled.errors import BadParameter
from unpooled.node import approval, config, policy
from unpooled.node.ledger import Ledger, Line, profile_line
from unpooled.pages import ledger_view

pytestmark = pytest.mark.network


@pytest.fixture(name="folder")
def folder_(tmp_path):
    return make_node(tmp_path / "zurich")


@pytest.fixture(name="server")
def server_(folder):
    with node_server(folder) as server:
        yield server


def rehearsed(server):
    """The page's text once every rehearsal has ended."""
    for _ in range(600):
        text = ask(server)[2]
        if "Rehearsing with" not in text and "Reading and checking" not in text:
            return text
        time.sleep(0.05)
    raise AssertionError(text)


def post(server, action, digest, form=None, origin=None):
    body = urlencode({"form": server.page.form_token if form is None else form, "study": digest})
    return ask(server, action, "POST", body, Origin=origin or f"http://127.0.0.1:{server.port}")


def digest_of(folder):
    return study.read(folder / "waiting" / "heart.toml").digest


def approved(folder):
    return list(policy.read(folder / "policy.toml").studies)


def line(i, kind="sum", **more):
    what = [["[0].n", [3], "float64"]]
    return Line("run", i, "mixture.e_step", kind, [], what, 3, 24, f"digest {i}", node="zurich", **more)


# ---- decisions ----


def test_a_waiting_study_is_shown_with_its_rehearsal(server, folder):
    text = rehearsed(server)
    for words in (
        "Heart &amp; &lt;clusters&gt;",
        "Which kinds of patients",
        "age, crp",
        digest_of(folder),
        "What would leave",
    ):
        assert words in text
    assert "mixture.e_step" in text
    assert 'action="approve"' in text


def test_there_is_no_button_to_approve_before_the_rehearsal(server, monkeypatch):
    monkeypatch.setattr(server.page.rehearsals, "of", lambda study: None)
    text = ask(server)[2]
    assert 'action="approve"' not in text
    assert 'action="refuse"' in text


def test_approving_writes_what_the_command_writes(server, folder, tmp_path):
    other = make_node(tmp_path / "other")
    main(["node", "approve", str(other / "waiting" / "heart.toml"), "--node", str(other / "node.toml")])
    assert post(server, "approve", digest_of(folder))[0] == 303
    assert approved(folder) == approved(other) == [digest_of(folder)]
    kept = f"studies/{digest_of(folder)[:16]}.toml"
    assert (folder / kept).read_bytes() == (other / kept).read_bytes()
    text = rehearsed(server)
    assert "No study waits" in text
    assert 'action="revoke"' in text


def test_refusing_leaves_the_policy_alone_and_is_noted(server, folder):
    before = (folder / "policy.toml").read_bytes()
    assert post(server, "refuse", digest_of(folder))[0] == 303
    assert (folder / "policy.toml").read_bytes() == before
    assert [d.decision for d in approval.decisions(config.read(folder / "node.toml"))] == ["refused"]
    assert "No study waits" in ask(server)[2]


def test_revoking_ends_an_approval(server, folder):
    post(server, "approve", digest_of(folder))
    assert post(server, "revoke", digest_of(folder))[0] == 303
    assert approved(folder) == []
    assert post(server, "revoke", digest_of(folder))[0] == 409


@pytest.mark.parametrize("form", ["", "x", "wrong" * 10])
def test_a_form_without_the_pages_own_token_does_nothing(server, folder, form):
    assert post(server, "approve", digest_of(folder), form=form)[0] == 403
    assert approved(folder) == []


def test_a_form_of_another_site_does_nothing(server, folder):
    assert post(server, "approve", digest_of(folder), origin="http://evil.example")[0] == 403
    assert approved(folder) == []


def test_a_file_that_was_exchanged_after_it_was_shown_is_not_approved(server, folder):
    shown = digest_of(folder)
    (folder / "waiting" / "heart.toml").write_text(STUDY.format(seed=1))
    status, _, text = post(server, "approve", shown)
    assert status == 409
    assert "reload" in text
    assert approved(folder) == []


def test_a_link_cannot_approve(server, folder):
    rehearsed(server)
    assert ask(server, f"approve?study={digest_of(folder)}&form={server.page.form_token}")[0] == 405
    assert approved(folder) == []


def test_a_study_file_can_be_handed_in(server, folder):
    headers = {"Origin": f"http://127.0.0.1:{server.port}", "X-Form-Token": server.page.form_token}
    assert "waits for review" in ask(server, "submit", "POST", STUDY.format(seed=7), **headers)[2]
    assert len(approval.waiting(config.read(folder / "node.toml"))) == 2
    assert ask(server, "submit", "POST", "no study", **headers)[0] == 400
    assert ask(server, "submit", "POST", "x" * 2_000_000, **headers)[0] == 413
    assert ask(server, "submit", "POST", STUDY.format(seed=8), **{**headers, "X-Form-Token": "x"})[0] == 403


def test_a_file_that_is_no_study_is_named(server, folder):
    (folder / "waiting" / "bad.toml").write_text("x = ")
    assert "waiting/bad.toml is not a study" in ask(server)[2]


def test_the_commands_decide_alike(folder, capsys):
    place = str(folder / "waiting" / "heart.toml"), "--node", str(folder / "node.toml")
    found = config.read(folder / "node.toml")
    assert main(["node", "approve", *place]) == 0
    assert main(["node", "refuse", *place]) == 0
    assert approved(folder) == []
    assert [d.decision for d in approval.decisions(found)] == ["approved", "revoked", "refused"]
    with pytest.raises(BadParameter, match="has approved no study"):
        approval.revoke(found, "")


def test_a_policy_that_cannot_be_read_is_said_on_the_page(server, folder):
    good = (folder / "policy.toml").read_text()
    (folder / "policy.toml").write_text("studies = 3\n")
    status, _, text = ask(server)
    assert status == 200
    assert "This page cannot be shown in full: policy.toml: studies = 3" in text
    (folder / "policy.toml").write_text(good)
    assert "Waiting for review" in ask(server)[2]


def test_other_rules_mean_another_rehearsal(server, folder):
    assert "more than 0.0001 per row" not in rehearsed(server)
    text = (folder / "policy.toml").read_text()
    (folder / "policy.toml").write_text(
        text.replace("max_parameters_per_row = 0.33", "max_parameters_per_row = 0.0001")
    )
    assert "more than 0.0001 per row" in rehearsed(server)


# ---- the ledger ----


def test_what_left_is_told_in_words(folder):
    book = Ledger(folder / "ledger.jsonl")
    for i in range(5):
        book.note(line(i, study="ab" * 32, masked=True))
    book.note(line(9, kind="refused"))
    with node_server(folder) as server:
        text = rehearsed(server)
        assert "5 answers have left" in text
        assert "1 question was refused" in text
        assert "added up over sites, masked" in text
        lines = ask(server, "ledger?page=1")[2]
        assert lines.count("<li>") == 6
        assert "digest 9" in lines


def test_lines_that_are_added_are_read_without_reading_the_others_again(folder, monkeypatch):
    book = Ledger(folder / "ledger.jsonl")
    book.note(line(0))
    view = ledger_view.LedgerView(folder / "ledger.jsonl")
    view.refresh()
    seen = []
    real = ledger_view.ledger.entries_after
    monkeypatch.setattr(ledger_view.ledger, "entries_after", lambda *a: seen.append(a[1]) or real(*a))
    view.refresh()
    book.note(line(1))
    view.refresh()
    assert len(view.lines) == 2
    assert len(seen) == 1
    assert seen[0] > 0


@pytest.mark.parametrize("change", ["edit", "cut"])
def test_a_ledger_that_was_changed_is_not_trusted(folder, change):
    path = folder / "ledger.jsonl"
    book = Ledger(path)
    for i in range(4):
        book.note(line(i))
    view = ledger_view.LedgerView(path)
    if change == "edit":
        path.write_text(path.read_text().replace('"numbers": 3', '"numbers": 1', 1))
    else:
        view.refresh()
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    view.refresh()
    assert "Do not trust" in ledger_view.summary(view, {})


def test_a_line_that_is_being_written_is_waited_for(folder):
    path = folder / "ledger.jsonl"
    book = Ledger(path)
    book.note(line(0))
    book.note(line(1))
    whole = path.read_text()
    path.write_text(whole[:-20])
    view = ledger_view.LedgerView(path)
    view.refresh()
    assert (len(view.lines), view.problem) == (1, "")
    path.write_text(whole)
    view.refresh()
    assert (len(view.lines), view.problem) == (2, "")


def test_ten_thousand_lines_are_shown_a_page_at_a_time(folder):
    path, texts = folder / "ledger.jsonl", []
    book = Ledger(path)
    book._append = texts.append  # the disk is not waited for
    for i in range(10_000):
        book.note(line(i))
    path.write_text("".join(texts))
    with node_server(folder) as server:
        text = rehearsed(server)
        assert "10,000" in text
        assert len(text) < 40_000
        last = ask(server, "ledger?page=200")[2]
        assert "page 200 of 200" in last
        assert last.count("<li>") == ledger_view.PER_PAGE
        for odd in ("0", "-1", "x", "9" * 30, "201"):
            assert ask(server, f"ledger?page={odd}")[0] == 200


def test_a_check_of_the_table_is_a_line_like_others(folder):
    Ledger(folder / "ledger.jsonl").note(profile_line({"rows": 80}))
    with node_server(folder) as server:
        assert "a description of the table" in ask(server)[2]


def test_a_defect_of_a_page_is_named_on_the_page(server, monkeypatch, capsys):
    monkeypatch.setattr(server.page, "parts", lambda: {}["missing"])
    status, _, text = ask(server)
    assert status == 200
    assert "an error in unpooled itself (KeyError: &#x27;missing&#x27;)" in text
    assert "Traceback" in capsys.readouterr().err


def test_the_budget_is_told(folder):
    text = (folder / "policy.toml").read_text()
    (folder / "policy.toml").write_text(text.replace("[limits]", "[privacy]\nepsilon = 4.0\ndelta = 1e-6\n\n[limits]"))
    Ledger(folder / "ledger.jsonl").note(line(0, mu2=0.04, release="a", epsilon=4.0, delta=1e-6))
    with node_server(folder) as server:
        assert re.search(r"epsilon 0\.\d\d of 4 spent \(delta 1e-06\), 1 looks", rehearsed(server))


def test_the_command_prints_the_address_and_serves(folder, monkeypatch, capsys):
    from unpooled.pages.server import Server

    monkeypatch.setattr(Server, "run", Server.close)
    assert main(["node", "page", "--node", str(folder / "node.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["address"].startswith("http://127.0.0.1:")
