"""A real SuperLink with TLS and node keys, three nodes with three kinds of tables: the fit is the one in process, whatever breaks."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import warnings
from datetime import timedelta

import flood
import numpy as np
import psutil
import pytest
from network import NodeProcess, answer_once, free_port, started, write_node
from toy import Centre, Wanderer, echo, pause, total

import unpooled as up
from unpooled import cli
from unpooled.data.federate import federate
from unpooled.errors import RunError
from unpooled.flower import Link, connect, server
from unpooled.flower.server import nodes
from unpooled.node import config as configs
from unpooled.node import policy
from unpooled.node.ledger import entries
from unpooled.remote import exchange, keys

pytestmark = pytest.mark.network


def open_fed(network, **how):
    return connect(network.link, **{"min_clients": 3, "wait": 60, **how})


def ledgers(network):
    """name -> (round, question) of every line of the last run."""
    rows = {n: list(entries(network.folder / n / "ledger.jsonl")) for n in network.nodes}
    return {
        n: [(e["round"], e["question"]) for e in lines if e["run"] == lines[-1]["run"]] for n, lines in rows.items()
    }


def test_the_fit_over_three_nodes_is_the_fit_in_process(network):
    model = lambda: up.GaussianMixture(n_components=3, random_state=0, max_iter=4, tol=1e-12)  # noqa: E731
    here = model().fit(federate(network.tables))
    with open_fed(network) as fed:
        there = model().fit(fed)
        assert fed.names == ["basel", "geneva", "zurich"]
        assert fed.journal.refusals == []
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_allclose(getattr(here, name), getattr(there, name), rtol=1e-12, atol=1e-12)
    assert there.columns_ == ["age", "chol", "thalach"]


def test_state_and_draws_are_those_in_process_and_every_answer_has_one_line(network):
    here = Wanderer().fit(federate(network.tables))
    with open_fed(network) as fed:
        there = Wanderer().fit(fed)
        asked = [(e.round, e.question) for e in fed.journal.exchanges]
    np.testing.assert_allclose(here.mean_, there.mean_, rtol=1e-12)
    assert ledgers(network) == dict.fromkeys(network.nodes, asked)


@pytest.mark.slow
def test_a_node_killed_between_two_rounds_comes_back_with_its_state(network):
    undisturbed = Wanderer().fit(federate(network.tables))
    with open_fed(network) as fed:
        model = Wanderer()
        for moment in model.rounds(fed):
            if len(moment.history) == 2:
                network.nodes["zurich"].kill()
                network.nodes["zurich"].start()
        asked = [(e.round, e.question) for e in fed.journal.exchanges]
        assert fed.journal.refusals == []
    np.testing.assert_allclose(model.mean_, undisturbed.mean_, rtol=1e-12)
    assert ledgers(network) == dict.fromkeys(network.nodes, asked)


def test_a_coordinator_that_starts_anew_goes_on_from_its_checkpoint(network):
    with open_fed(network) as fed:
        model = Wanderer().fit(fed)
    with open_fed(network) as fed:
        rounds = Wanderer().rounds(fed)
        saved = [next(rounds) for _ in range(4)][-2]  # killed after a round whose checkpoint was lost
    with open_fed(network) as fed:
        second = Wanderer()
        list(second.rounds(fed, saved))
    assert np.array_equal(second.mean_, model.mean_)
    for lines in ledgers(network).values():
        assert len(lines) == len(set(lines))


def test_two_drivers_do_not_mix(network):
    with open_fed(network), pytest.raises(RunError, match="another run is using the link"), open_fed(network):
        pass


def test_a_straggler_is_left_out_and_comes_back(network):
    with open_fed(network) as fed:
        fed.sum(total, Centre(np.zeros(3)))
        fed.min_clients, fed.timeout = 2, 1.0
        os.kill(network.nodes["basel"].process.pid, signal.SIGSTOP)  # there, but silent
        try:
            fed.sum(total, Centre(np.zeros(3)))
        finally:
            os.kill(network.nodes["basel"].process.pid, signal.SIGCONT)
        assert [(r.client, r.reason.split(" within")[0]) for r in fed.journal.refusals] == [("basel", "no answer")]
        fed.timeout = 60
        fed.sum(total, Centre(np.zeros(3)))
        assert [e.answered for e in fed.journal.exchanges] == [3, 2, 3]


def test_large_statistics_pass(network):
    with open_fed(network) as fed:
        sent = np.arange(2_000_000.0)  # 16 MB each way
        assert np.array_equal(fed.sum(echo, Centre(sent)).mean, 3 * sent)


@pytest.mark.slow
def test_a_run_that_ends_while_answers_travel_costs_no_node(network, monkeypatch):
    connected = lambda: [n.log.read_text().count("is connected") for n in network.nodes.values()]  # noqa: E731
    monkeypatch.setattr(exchange, "SLOW_FACTOR", 0.05)  # so that nodes have much left to answer at the end
    before, sent = connected(), np.arange(600_000.0)
    for _ in range(2):
        with open_fed(network, retry=0.05) as fed:
            assert np.array_equal(fed.sum(echo, Centre(sent)).mean, 3 * sent)
    assert connected() == before
    assert [n.process.poll() for n in network.nodes.values()] == [None] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("admitted", "sentence"), [("basel", "two nodes called 'basel'"), ("mallory", "uses the key admitted as 'mallory'")]
)
def test_two_nodes_with_one_name_are_refused(network, tmp_path, admitted, sentence):
    text = f'path = "{network.folder / "basel.csv"}"'
    other = write_node(tmp_path / "other", admitted, network.link.address, network.folder / "link", text)
    other.write_text(other.read_text().replace(f'name = "{admitted}"', 'name = "basel"'))
    twin = NodeProcess(other)
    with open_fed(network) as fed:
        assert fed.names == ["basel", "geneva", "zurich"]
        with started(twin):
            twin.said("connected")
            end = time.monotonic() + 20
            while not fed.roster.rejected and time.monotonic() < end:
                fed.sum(total, Centre(np.zeros(3)))
                time.sleep(0.3)
            assert sentence in next(iter(fed.roster.rejected.values()))
            assert fed.sum(total, Centre(np.zeros(3))).n == sum(len(t) for t in network.tables.values())


# ---- who gets in ----


def test_a_key_that_was_not_admitted_is_turned_away(network, tmp_path):
    config = write_node(tmp_path / "stranger", "stranger", network.link.address, tmp_path / "nolink", 'path = "x.csv"')
    (tmp_path / "stranger" / "x.csv").write_text("age,chol,thalach\n1,2,3\n")
    text = config.read_text().replace(str(tmp_path / "nolink"), str(network.folder / "link"))
    config.write_text(text)
    stranger = NodeProcess(config)
    with started(stranger):
        assert "have its key admitted" in stranger.said("rejected 'stranger'")
        assert stranger.stop() == 0
    assert "stranger" not in [n["name"] for n in nodes(network.link)]


def test_a_wrong_ca_is_refused(network, tmp_path):
    keys.make_authority(tmp_path, ["127.0.0.1"])
    keys.make_node_key(tmp_path / "node.key")
    link = Link(network.link.address, (tmp_path / "ca.crt").read_bytes())
    with pytest.raises(RunError, match=r"not to be trusted.*CERTIFICATE_VERIFY_FAILED"):
        answer_once(link, tmp_path / "node.key")


@pytest.mark.slow
def test_an_expired_certificate_is_named_by_nodes_and_by_serve_itself(tmp_path, caplog):
    keys.make_authority(tmp_path, ["127.0.0.1"], valid=timedelta(hours=-1))
    (tmp_path / "ca.key").unlink()  # or it would be renewed
    keys.make_node_key(tmp_path / "node.key")
    address = f"127.0.0.1:{free_port()}"
    link = server.prepare(tmp_path, address, [], insecure=False)
    process = server._start(link)
    try:
        with pytest.raises(RunError, match="certificate has expired"):
            server._wait(link, process)
        with caplog.at_level("INFO", logger="unpooled.node"):
            answer_once(link, tmp_path / "node.key", 1)
        assert "has expired: ask the coordinator to run `unpooled serve renew`" in caplog.text
    finally:
        server.stop(process)


@pytest.mark.slow
@pytest.mark.parametrize(("head", "part", "code"), flood.WAYS.values(), ids=flood.WAYS)
def test_what_is_sent_without_a_key_does_not_fill_the_memory_of_the_superlink(network, head, part, code):
    """`benchmarks/large_requests.py` sends 600 MB in each of these ways; 100 MB show as well that nothing is kept."""
    before = flood.memory()
    answer, highest = flood.send(network.link, head, part, 100 * 2**20)
    assert answer.split()[1] == code
    assert highest - before < 50 * 2**20


def test_a_renewed_certificate_is_used_without_a_restart(network):
    host, port = network.link.address.split(":")
    before = ssl.get_server_certificate((host, int(port)))
    keys.renew(network.folder / "link")
    end = time.monotonic() + 30
    while ssl.get_server_certificate((host, int(port))) == before and time.monotonic() < end:
        time.sleep(0.2)
    assert ssl.get_server_certificate((host, int(port))) == (network.folder / "link" / "server.crt").read_text()
    with open_fed(network) as fed:
        assert fed.sum(total, Centre(np.zeros(3))).n == sum(len(t) for t in network.tables.values())


@pytest.mark.slow
def test_a_node_obeys_its_signals_while_it_computes(network):
    node = network.nodes["basel"]
    with open_fed(network) as fed:
        fed.sum(total, Centre(np.zeros(3)))  # all three are there
        fed.min_clients, fed.timeout = 2, 3.0
        fed.sum(pause.using(seconds=600.0, who="basel"), Centre(np.zeros(3)))
        assert [r.client for r in fed.journal.refusals] == ["basel"]
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(30) == 0
    connected = node.log.read_text().count("is connected")
    node.start()
    end = time.monotonic() + 60
    while node.log.read_text().count("is connected") == connected and time.monotonic() < end:
        time.sleep(0.1)


def test_the_inner_doors_ask_for_the_token(network):
    stranger = Link(network.link.address, network.link.ca, "0" * 64)
    with pytest.raises(RunError, match="token is wrong"), connect(stranger):
        pass


# ---- the commands ----


def test_the_same_config_file_runs_over_the_link_and_the_ledger_is_explained(network, tmp_path, capsys):
    link = str(network.folder / "link")
    (tmp_path / "heart.toml").write_text(
        '[model]\nname = "GaussianMixture"\nn_components = 2\nmax_iter = 2\nrandom_state = 0\n[federation]\nmin_clients = 3\n'
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two rounds do not converge, and say so
        assert (
            cli.main(["run", str(tmp_path / "heart.toml"), "--on", link, "--out", str(tmp_path / "run"), "--json"]) == 0
        )
        here = up.GaussianMixture(n_components=2, max_iter=2, random_state=0).fit(federate(network.tables))
    np.testing.assert_allclose(up.load(tmp_path / "run").means_, here.means_, rtol=1e-12)
    page = (tmp_path / "run" / "report.html").read_text()
    assert all(name in page for name in network.nodes)
    capsys.readouterr()
    assert cli.main(["status", "--link", link, "--runs", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {n["name"] for n in told["nodes"] if n["status"] == "online"} >= {"basel", "geneva", "zurich"}
    assert told["rounds"] == {"run": 2}
    ledger = str(network.folder / "basel" / "ledger.jsonl")
    assert cli.main(["node", "ledger", "verify", ledger]) == 0
    assert "none changed" in capsys.readouterr().out
    assert cli.main(["node", "ledger", "show", ledger, "--last", "1"]) == 0
    assert "in answer to mixture." in capsys.readouterr().out


def serve(folder, *more):
    address = f"127.0.0.1:{free_port()}"
    command = [
        sys.executable,
        "-m",
        "unpooled.cli",
        "serve",
        "--link",
        str(folder),
        "--address",
        address,
        *more,
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert json.loads(process.stdout.readline())["address"] == address
    (link,) = psutil.Process(process.pid).children()
    return process, link


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_serve_leaves_nothing_behind(tmp_path, sign):
    process, link = serve(tmp_path / "link", "--insecure")
    process.send_signal(sign)
    with process:
        assert process.wait(30) == (-9 if sign == signal.SIGKILL else 0)
    link.wait(30)
    assert not link.is_running()


@pytest.mark.slow
def test_serve_ends_with_a_sentence_when_its_superlink_dies(tmp_path):
    process, link = serve(tmp_path / "link", "--insecure")
    link.kill()
    with process:
        assert process.wait(30) == 1
        assert "the SuperLink ended unexpectedly" in process.stdout.read()


def test_a_node_is_made_and_admitted_from_the_command_line(tmp_path, capsys):
    assert cli.main(["node", "init", str(tmp_path / "bern"), "--data", "x.csv", "--on", "127.0.0.1:1"]) == 0
    config = configs.read(tmp_path / "bern" / "node.toml")
    assert (config.name, config.link, config.data["path"]) == ("bern", "127.0.0.1:1", "x.csv")
    assert (tmp_path / "bern" / "node.key").stat().st_mode & 0o77 == 0
    assert policy.read(tmp_path / "bern" / "policy.toml").gather is False
    assert cli.main(["serve", "admit", str(tmp_path / "bern" / "node.pub"), "--link", str(tmp_path / "l")]) == 0
    assert (tmp_path / "l" / "admitted" / "bern.pub").exists()
    assert cli.main(["node", "init", str(tmp_path / "bern")]) == 1
    assert cli.main(["node", "start", str(tmp_path / "bern" / "node.toml")]) == 1
    assert "x.csv is not a file" in capsys.readouterr().err


def test_insecure_is_for_loopback_only(tmp_path, capsys):
    assert cli.main(["serve", "--insecure", "--address", "0.0.0.0:9", "--link", str(tmp_path)]) == 1
    assert "loopback only" in capsys.readouterr().err
