"""Whatever is sent, node and coordinator refuse it with a reason, go on, and execute nothing."""

import numpy as np
import pytest
from flower_grid import MessageGrid
from hostile import (
    GOOD,
    MARK,
    OWN,
    RECORDS_TO_NODE,
    TO_COORDINATOR,
    TO_NODE,
    coordinator,
    node,
    redone,
    request,
    send_to_node,
)
from toy import Centre, total

from unpooled.layers.compression.layer import Compressed
from unpooled.node.ledger import entries

CASES = {**TO_NODE, **RECORDS_TO_NODE}


@pytest.fixture(autouse=True)
def nothing_is_executed():
    MessageGrid([])  # gives Flower the identity that its messages ask for
    MARK.unlink(missing_ok=True)
    yield
    assert not MARK.exists()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_node_refuses_with_a_reason_and_nothing_leaves(tmp_path, case):
    site = node(tmp_path)
    head = send_to_node(site, case)
    assert head["refused"]
    if case is not TO_NODE["another number of columns"]:  # which only the question itself can see
        assert "Error at the node" not in head["refused"], "refused by a check, not by luck"
    assert list(entries(tmp_path / "ledger.jsonl")) == []
    assert "refused" not in send_to_node(site, request()), "and the node goes on"


def test_the_honest_request_is_answered(tmp_path):
    import json

    assert "refused" not in send_to_node(node(tmp_path), (GOOD, json.dumps(OWN)))


@pytest.mark.parametrize("twist", TO_COORDINATOR.values(), ids=TO_COORDINATOR)
def test_the_coordinator_refuses_names_counts_and_goes_on(twist):
    fed = coordinator(twist)
    assert fed.sum(total, Centre(np.zeros(3))).n == 60
    (refusal,) = fed.journal.refusals
    assert refusal.client == "mallory"
    assert refusal.reason
    assert fed.journal.exchanges[-1].answered == 2


@pytest.mark.parametrize(
    "garbled",
    [lambda b: b[:-3], lambda b: b[::-1].copy(), lambda b: b * 0.5, lambda b: None],
    ids=["cut", "noise", "floats", "none"],
)
def test_garbled_bytes_of_a_compressed_answer_are_refused_by_name(garbled):
    fed = Compressed(coordinator(redone(garbled)))
    for _ in range(2):
        assert fed.sum(total, Centre(np.zeros(3))).n == 60
    assert [r.client for r in fed.journal.refusals] == ["mallory"] * 2
    assert fed.journal.refusals[0].reason.startswith("the answer of 'mallory' cannot be read (")


def test_without_a_twist_mallory_counts():
    assert coordinator(lambda reply: reply).sum(total, Centre(np.zeros(3))).n == 90


def test_there_are_at_least_forty():
    assert len(CASES) + len(TO_COORDINATOR) >= 40
