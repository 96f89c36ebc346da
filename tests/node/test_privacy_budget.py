"""The accountant at the node: looks with noise are charged to its own ledger, and refused beyond its budget."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
sys.path.insert(0, str(Path(__file__).parent))
from memory import MemoryTransport
from test_study import COLUMNS, NAMES, coordinator, fingerprints, fit, make_sites, study_file

import unpooled as up
from unpooled import config as configs
from unpooled import study
from unpooled.client import Client
from unpooled.errors import BadParameter, TooFewClients
from unpooled.layers.private.nodes import PrivateNodes
from unpooled.models.private import ColumnMoments
from unpooled.node import budget, policy, review
from unpooled.node.budget import Budget
from unpooled.node.ledger import Ledger, budget_line, entries
from unpooled.node.opening import OpenTable
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import Remote

ROWS = {name: np.random.default_rng(i).normal(size=(3000, 3)) for i, name in enumerate(NAMES)}
BOUNDS = dict.fromkeys(COLUMNS, (-5.0, 5.0))
MIXTURE = 'name = "GaussianMixture"\nn_components = 2\nrandom_state = 0'
PRIVACY = "[privacy]\nepsilon = 4.0\ndelta = 1e-6\nbounds = {age = [-5.0, 5.0], bp = [-5.0, 5.0], chol = [-5.0, 5.0]}\n"


def trusting_sites(tmp_path, own: Budget | None, vaults=None):
    rules = Policy(privacy=own)
    vaults = vaults if vaults is not None else {name: {} for name in NAMES}
    return [
        Site(
            n,
            Source(Client(n, ROWS[n]), COLUMNS),
            vaults[n],
            policy=lambda: rules,
            ledger=Ledger(tmp_path / f"{n}.jsonl"),
        )
        for n in NAMES
    ]


def private(sites, epsilon=2.0, **options):
    fed = Remote(MemoryTransport(sites), names=NAMES, columns=COLUMNS, wait=2, timeout=2)
    return PrivateNodes(fed, epsilon=epsilon, delta=1e-6, bounds=BOUNDS, masked=False, **options)


def test_looks_are_charged_by_each_node_to_its_own_ledger(tmp_path):
    fed = private(trusting_sites(tmp_path, Budget(4.0, 1e-6)))
    moments = ColumnMoments().fit(fed)
    truth = np.concatenate(list(ROWS.values()))
    assert np.abs(moments.mean_ - truth.mean(0)).max() < 0.1
    assert not np.array_equal(moments.mean_, truth.mean(0))
    assert budget_line(tmp_path / "basel.jsonl").startswith("epsilon 2.00 of 4 spent (delta 1e-06)")
    lines = list(entries(tmp_path / "basel.jsonl"))
    assert sum(e["mu2"] for e in lines) == pytest.approx(fed.accountant.mu2_total, rel=1e-9)


def test_beyond_its_budget_a_node_refuses_and_says_what_is_left(tmp_path):
    sites = trusting_sites(tmp_path, Budget(2.5, 1e-6))
    ColumnMoments().fit(private(sites))
    other = {name: rows + 1 for name, rows in ROWS.items()}
    for site in sites:  # changed rows: the same question is another look
        site.source = Source(Client(site.name, other[site.name]), COLUMNS)
        site._table = OpenTable(site.name, site.source, site.vault)
    with pytest.raises(TooFewClients, match=r"epsilon 2\.00 of 2\.5 is spent"):
        ColumnMoments().fit(private(sites))


def test_the_same_look_has_the_same_noise_and_costs_nothing(tmp_path):
    sites = trusting_sites(tmp_path, Budget(2.5, 1e-6))
    found = [ColumnMoments().fit(private(sites)).mean_ for _ in range(4)]
    assert all(np.array_equal(found[0], other) for other in found[1:]), "asked again, noise does not average away"
    assert "epsilon 2.00 of 2.5" in budget_line(tmp_path / "basel.jsonl")


def test_a_restart_forgets_no_charge(tmp_path):
    vaults = {name: {} for name in NAMES}
    ColumnMoments().fit(private(trusting_sites(tmp_path, Budget(2.5, 1e-6), vaults)))
    again = trusting_sites(tmp_path, Budget(2.5, 1e-6), vaults)
    assert budget.spent(again[0].ledger.looks, 1e-6) == pytest.approx(2.0, rel=1e-6)


def test_a_ledger_that_was_cut_stops_answers(tmp_path):
    vaults = {name: {} for name in NAMES}
    ColumnMoments().fit(private(trusting_sites(tmp_path, Budget(8.0, 1e-6), vaults)))
    for name in NAMES:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(TooFewClients, match="was cut or replaced"):
        ColumnMoments().fit(private(trusting_sites(tmp_path, Budget(8.0, 1e-6), vaults)))


def test_without_a_budget_no_look_and_with_a_required_one_nothing_else(tmp_path):
    with pytest.raises(TooFewClients, match="has no privacy budget"):
        ColumnMoments().fit(private(trusting_sites(tmp_path / "a", None)))
    sites = trusting_sites(tmp_path / "b", Budget(4.0, 1e-6, required=True))
    plain = Remote(MemoryTransport(sites), names=NAMES, columns=COLUMNS, wait=1, timeout=1)
    with pytest.raises(TooFewClients, match="answers looks with noise alone"):
        up.GaussianMixture(2, init_params="random", random_state=0).fit(plain)


def test_one_look_may_not_cost_more_than_its_limit(tmp_path):
    fed = private(trusting_sites(tmp_path, Budget(4.0, 1e-6, per_question=0.5)))
    with pytest.raises(TooFewClients, match=r"costs more than the epsilon 0\.5"):
        ColumnMoments().fit(fed)


def private_study():
    content = study_file(MIXTURE, marks=fingerprints()).decode() + PRIVACY
    return study.parse(content.encode())


@pytest.mark.slow
def test_a_private_masked_study_is_followed_to_its_end(tmp_path):
    approved = private_study()
    sites = make_sites(tmp_path, approved, rows=ROWS, privacy=Budget(4.0, 1e-6))
    fed = configs.with_privacy(coordinator(MemoryTransport(sites), approved), approved.config)
    model = fit(approved, fed)
    plain = up.GaussianMixture(2, random_state=0).fit(ROWS)
    rows = np.concatenate(list(ROWS.values()))
    assert model.score(rows) > plain.score(rows) - 0.1
    assert not fed.journal.refusals
    looks = [e for e in entries(tmp_path / "basel" / "ledger.jsonl") if e["mu2"]]
    assert looks
    assert all(e["masked"] and e["followed"] for e in looks)
    assert budget_line(tmp_path / "basel" / "ledger.jsonl").startswith("epsilon 4.00 of 4 spent")


def test_a_coordinator_that_wants_to_learn_more_than_the_study_says_is_refused(tmp_path):
    approved = private_study()
    sites = make_sites(tmp_path, approved, rows=ROWS, privacy=Budget(40.0, 1e-6))
    greedy = {**approved.config, "privacy": {**approved.config["privacy"], "epsilon": 20.0}}
    fed = configs.with_privacy(coordinator(MemoryTransport(sites), approved), greedy)
    with pytest.raises(TooFewClients, match=r"tell more than the study lets it|is not what the study sends"):
        fit(approved, fed)


def test_a_review_rehearses_the_study_with_noise():
    found = review.review(private_study(), "basel", Source(Client("basel", ROWS["basel"]), COLUMNS), Policy())
    assert found.failure == ""
    assert all(q.kind == "sum" for q in found.questions)
    assert any("epsilon 4, delta 1e-06" in line for line in review.explain(found))


def test_the_section_is_read_strictly(tmp_path):
    path = tmp_path / "policy.toml"
    for text, why in (
        ("epsilon = 1.0", "needs delta"),
        ("epsilon = 0\ndelta = 1e-6", "needs epsilon above 0"),
        ("epsilom = 1.0\ndelta = 1e-6", "did you mean 'epsilon'"),
        ("epsilon = 1.0\ndelta = 2", "far below 1"),
    ):
        path.write_text(f"[privacy]\n{text}\n")
        with pytest.raises(BadParameter, match=why):
            policy.read(path)


def test_repeated_and_renamed_requests_do_not_average_the_noise_away(tmp_path):
    site = trusting_sites(tmp_path, Budget(2.5, 1e-6))[0]
    found = set()
    for _ in range(200):  # each is a run of its own: another name, another seed
        fed = Remote(MemoryTransport([site]), names=[site.name], columns=COLUMNS, wait=2, timeout=2)
        fed = PrivateNodes(fed, epsilon=2.0, delta=1e-6, bounds=BOUNDS, masked=False)
        found.add(ColumnMoments().fit(fed).mean_.tobytes())
    assert len(found) == 1
    assert len(site.ledger.looks) == 1
