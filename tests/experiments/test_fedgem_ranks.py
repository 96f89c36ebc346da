"""Ranks of clustering methods: over cells that all have, over sets, and a place among whoever was measured."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "fedgem"


LOCAL = ("_ranks", "_methods", "_data", "_device")  # other papers' experiments have files of the same names


@pytest.fixture(name="rank_table")
def rank_table_(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in LOCAL:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module("_ranks").rank_table
    for name in LOCAL:
        sys.modules.pop(name, None)


def row(case, method, seed, ari):
    return {"case": case, "method": method, "seed": seed, "pooled_ari": ari}


def test_ranks_by_hand(rank_table):
    rows = [
        *(row("s1", "AFCL", s, a) for s, a in [(0, 0.5), (1, 0.9)]),
        *(row("s1", "k-FED", s, a) for s, a in [(0, 0.8), (1, 0.9)]),
        *(row("s1", "FedGEM", s, a) for s, a in [(0, 0.9), (1, 0.1)]),
        row("mnist", "AFCL", 0, 0.1),
        row("mnist", "FedGEM", 0, 0.2),  # k-FED was not measured there
    ]
    found = {line["method"]: line for line in rank_table(rows)}
    assert {m: line["mean rank"] for m, line in found.items()} == {"AFCL": 2.25, "k-FED": 1.75, "FedGEM": 2.0}
    assert {line["common cells"] for line in found.values()} == {2}
    assert {m: line["mean rank of sets"] for m, line in found.items()} == {"AFCL": 2, "k-FED": 1, "FedGEM": 3}
    assert {m: line["cells"] for m, line in found.items()} == {"AFCL": 3, "k-FED": 2, "FedGEM": 3}
    assert found["FedGEM"]["place in all cells"] == pytest.approx((0.0 + 1.0 + 0.0) / 3)
    assert found["AFCL"]["place in all cells"] == pytest.approx((1.0 + 0.25 + 1.0) / 3)
    assert [line["method"] for line in rank_table(rows)] == ["k-FED", "FedGEM", "AFCL"]
