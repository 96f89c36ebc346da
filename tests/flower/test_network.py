"""A real SuperLink with TLS and node keys, three nodes with three kinds of tables: the fit is the one in process, whatever breaks."""

import os
import threading
import time
from datetime import timedelta

import numpy as np
import pytest
from network import NodeProcess, free_port, started, write_node
from toy import Centre, Wanderer, total, wander

import unpooled as up
from unpooled.errors import RunError
from unpooled.flower import Link, connect, keys, server
from unpooled.flower.server import nodes
from unpooled.local import federate
from unpooled.node.ledger import entries

pytestmark = pytest.mark.network


def open_fed(network, **how):
    return connect(network.link, **{"min_clients": 3, "wait": 60, **how})


def ledgers(network):
    """name -> (round, question) of every line of the last run."""
    rows = {n: list(entries(network.folder / n / "ledger.jsonl")) for n in network.nodes}
    return {n: [(e["round"], e["question"]) for e in lines if e["run"] == lines[-1]["run"]] for n, lines in rows.items()}


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
        os.kill(network.nodes["basel"].process.pid, 19)  # SIGSTOP: there, but silent
        try:
            fed.sum(total, Centre(np.zeros(3)))
        finally:
            os.kill(network.nodes["basel"].process.pid, 18)
        assert [(r.client, r.reason.split(" within")[0]) for r in fed.journal.refusals] == [("basel", "no answer")]
        fed.timeout = 60
        fed.sum(total, Centre(np.zeros(3)))
        assert [e.answered for e in fed.journal.exchanges] == [3, 2, 3]


def test_large_statistics_pass(network):
    with open_fed(network, columns=["age", "chol", "thalach"]) as fed:
        big = Centre(np.arange(3_000_000.0))  # 24 MB down; the refusal is about its size, after it arrived whole
        with pytest.raises(Exception, match="broadcast|shape|ValueError"):
            fed.sum(wander, big)


def test_two_nodes_with_one_name_are_refused(network, tmp_path):
    text = f'path = "{network.folder / "basel.csv"}"'
    other = write_node(tmp_path / "other", "basel", network.link.address, network.folder / "link", text)
    twin = NodeProcess(other)
    with open_fed(network) as fed:
        assert fed.names == ["basel", "geneva", "zurich"]
        with started(twin):
            twin.said("connected")
            end = time.monotonic() + 20
            while not fed._roster.refused and time.monotonic() < end:
                fed.sum(total, Centre(np.zeros(3)))
                time.sleep(0.3)
            assert "two nodes called 'basel'" in next(iter(fed._roster.refused.values()))
            assert fed.sum(total, Centre(np.zeros(3))).n == sum(len(t) for t in network.tables.values())


# ---- who gets in ----


def test_a_key_that_was_not_admitted_is_turned_away(network, tmp_path):
    config = write_node(tmp_path / "stranger", "stranger", network.link.address, tmp_path / "nolink", 'path = "x.csv"')
    (tmp_path / "stranger" / "x.csv").write_text("age,chol,thalach\n1,2,3\n")
    text = config.read_text().replace(str(tmp_path / "nolink"), str(network.folder / "link"))
    config.write_text(text)
    stranger = NodeProcess(config)
    with started(stranger):
        assert "have its key admitted" in stranger.said("turned 'stranger' away")
        assert stranger.stop() == 0
    assert "stranger" not in [n["name"] for n in nodes(network.link)]


def answer_once(link, folder):
    """Connect as a node would, in this process."""
    from unpooled.client import Client
    from unpooled.flower import fleet
    from unpooled.node.site import Site, Source

    site = Site("x", Source(Client("x", np.ones((2, 2)))), {})
    stop = threading.Event()
    threading.Timer(10, stop.set).start()
    fleet.run(site, link, keys.read_node_key(folder / "node.key"), stop)


def test_a_wrong_ca_is_refused(network, tmp_path):
    keys.make_authority(tmp_path, ["127.0.0.1"])
    keys.make_node_key(tmp_path / "node.key")
    link = Link(network.link.address, (tmp_path / "ca.crt").read_bytes())
    with pytest.raises(RunError, match=r"not to be trusted.*CERTIFICATE_VERIFY_FAILED"):
        answer_once(link, tmp_path)


def test_an_expired_certificate_is_refused_by_nodes_and_by_serve_itself(tmp_path):
    keys.make_authority(tmp_path, ["127.0.0.1"], valid=timedelta(hours=-1))
    keys.make_node_key(tmp_path / "node.key")
    address = f"127.0.0.1:{free_port()}"
    link = server.prepare(tmp_path, address, [], insecure=False)
    process = server._start(link)
    try:
        with pytest.raises(RunError, match="certificate has expired"):
            server._wait(link, process)
        with pytest.raises(RunError, match=r"not to be trusted.*certificate has expired"):
            answer_once(link, tmp_path)
    finally:
        server._stop(process)


def test_the_inner_doors_ask_for_the_token(network):
    stranger = Link(network.link.address, network.link.ca, "0" * 64)
    with pytest.raises(RunError, match="token is wrong"), connect(stranger):
        pass
