"""The coordinator's page follows a run while it goes on: rounds, who is late and why, bytes, refusals."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from place import ask, make_run, serving

from unpooled import runs
from unpooled.cli import main
from unpooled.errors import DataNotFound
from unpooled.pages import watch
from unpooled.pages.server import Server

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))

pytestmark = pytest.mark.network


@pytest.fixture(name="run")
def run_(tmp_path):
    return make_run(tmp_path, "runs/one")


def unfinished(run):
    for name in ("summary.json", "model/model.zip", "report.html"):
        (run / name).unlink()
    return run


pytestmark = [pytestmark, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


def test_a_finished_run_has_its_curve_and_its_report(run):
    with serving(Server(watch.RunPage(run), watch.routes(lambda request: run))) as server:
        text = ask(server)[2]
        assert "Finished after 6 rounds" in text
        assert "Log-likelihood per row by round" in text
        assert "Bytes that clients sent up" in text
        assert "No answer was refused" in text
        status, headers, report = ask(server, "report")
        assert status == 200
        assert "What left each client" in report
        assert "unsafe" not in headers["content-security-policy"]


def test_a_run_that_goes_on_tells_who_is_late_and_why(run):
    unfinished(run)
    (run / "lock").write_text(str(os.getpid()))
    since = "2026-01-01T00:00:00+00:00"
    waiting = {"south <b>": "it is not connected"}
    live = {"round": 9, "question": "mixture.e_step", "since": since, "asked": 2, "answered": 1, "waiting": waiting}
    (run / "live.json").write_text(json.dumps(live))
    text = "".join(watch.RunPage(run).parts().values())
    assert "1 of 2 have answered" in text
    assert "Waiting for south &lt;b&gt;: it is not connected." in text
    assert '<progress value="6" max="6"' in text


def test_a_run_that_nobody_works_on_is_called_stopped(run):
    unfinished(run)
    (run / "lock").write_text("999999999")
    assert "Stopped: no process" in watch.RunPage(run).parts()["progress"]


def test_a_run_that_has_not_begun_or_waits_for_nodes_is_not_called_stopped(run):
    unfinished(run)
    (run / "lock").unlink()
    assert "Not begun yet" in watch.RunPage(run).parts()["progress"]
    (run / "lock").write_text(str(os.getpid()))
    assert "waits for nodes to connect" in watch.RunPage(run).parts()["progress"]


def test_refusals_are_counted_by_client(run):
    rows = [
        {"round": i, "client": "south", "question": "mixture.e_step", "reason": "no answer within 3 s"}
        for i in range(3)
    ]
    (run / "refusals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = watch.RunPage(run).parts()["refusals"]
    assert "3 answers were refused or late: south 3." in text
    assert text.count("no answer within 3 s") == 3


def test_half_a_line_is_left_out(run):
    with (run / "history.jsonl").open("a") as file:
        file.write('{"round": 7, "logl')
    assert "Finished after 6 rounds" in watch.RunPage(run).parts()["progress"]


def test_the_stamp_changes_with_the_files(run):
    page = watch.RunPage(run)
    before = page.stamp()
    assert page.stamp() == before
    with (run / "history.jsonl").open("a") as file:
        file.write("\n")
    assert page.stamp() != before


def test_a_run_over_nodes_notes_for_whom_it_waits(tmp_path):
    from memory import MemoryTransport

    import unpooled as up
    from unpooled.client import Client
    from unpooled.node.policy import Policy
    from unpooled.node.rows import Source
    from unpooled.node.site import Site
    from unpooled.remote import Remote

    rows = {name: np.random.default_rng(i).normal(size=(60, 2)) for i, name in enumerate(("a", "b", "c"))}
    sites = [Site(n, Source(Client(n, x), ["u", "v"]), {}, policy=Policy) for n, x in rows.items()]
    fed = Remote(MemoryTransport(sites), min_clients=3, columns=["u", "v"])
    seen = []
    fed.journal.watch = lambda tally: seen.append((tally.answered, dict(tally.waiting), tally.asked))
    up.GaussianMixture(2, max_iter=2, tol=0, random_state=0).fit(fed)
    assert all(asked == 3 for _, _, asked in seen)
    assert any(set(waiting) <= set(rows) and answered < 3 for answered, waiting, _ in seen)
    assert seen[-1][:2] == (3, {})


def test_the_note_of_a_run_is_written_now_and_then(tmp_path, monkeypatch):
    import unpooled as up

    monkeypatch.setattr(runs, "LIVE_EVERY", 0.0)
    fed = up.federate({"a": np.random.default_rng(0).normal(size=(30, 2))})
    fed.journal.watch = runs.Live(tmp_path / "live.json")
    up.GaussianMixture(1, max_iter=1, random_state=0).fit(fed)
    found = json.loads((tmp_path / "live.json").read_text())
    assert (found["asked"], found["answered"], found["waiting"]) == (1, 1, {})
    assert found["question"] == "mixture.e_step"


# ---- a link ----


@pytest.fixture(name="link")
def link_(tmp_path):
    from unpooled.remote.link import Link

    Link("127.0.0.1:1", token="x", folder=tmp_path / "link").save()
    return tmp_path / "link"


def test_a_link_that_does_not_answer_is_said(link, run, monkeypatch):
    from unpooled.errors import RunError
    from unpooled.remote import engines

    class Silent:
        def status(self, link):
            raise RunError("nobody listens there")

    monkeypatch.setattr(engines, "engine", lambda name: Silent())
    with serving(Server(watch.LinkPage(link, run.parent), watch.link_routes(run.parent))) as server:
        text = ask(server)[2]
        assert "nobody listens there" in text
        assert 'href="run/one/"' in text
        assert "Finished after 6 rounds" in ask(server, "run/one/")[2]
        assert ask(server, "run/one/report")[0] == 200
        for outside in ("run/two/", "run/..%2F..%2Fa/", "run/%2e%2e/"):
            assert ask(server, outside)[0] == 404


def test_nodes_of_a_link_are_listed(link, run, monkeypatch):
    from unpooled.remote import engines

    class Known:
        def status(self, link):
            return {
                "nodes": [{"name": "zurich", "id": 1, "status": "online"}, {"name": "", "id": 7, "status": "offline"}],
                "runs": [],
            }

    monkeypatch.setattr(engines, "engine", lambda name: Known())
    text = watch.LinkPage(link, run.parent).parts()["nodes"]
    assert "zurich" in text
    assert "offline" in text


def test_the_command_knows_a_run_from_a_link(run, monkeypatch, capsys):
    monkeypatch.setattr(Server, "run", Server.close)
    assert main(["watch", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["address"].startswith("http://127.0.0.1:")
    assert main(["watch", "nowhere", "--json"]) == 1
    assert "no link is known" in capsys.readouterr().out


def test_a_place_that_is_neither_is_refused():
    from unpooled.remote.link import find

    with pytest.raises(DataNotFound):
        find("nowhere")
