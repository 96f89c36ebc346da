"""Two totals whose difference would be one site's own answer: a second run without a site, and a second study without a site."""

import sys
from pathlib import Path

import numpy as np
import pytest
from test_study import COLUMNS, study_file

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
from cryptography.hazmat.primitives.asymmetric import ec
from memory import MemoryTransport

from unpooled import study, wire
from unpooled.client import Client
from unpooled.errors import TooFewClients
from unpooled.layers.followed import Followed
from unpooled.layers.secure import SecureSum
from unpooled.models.initialization import column_sums
from unpooled.node import review
from unpooled.node.policy import Policy
from unpooled.node.questions import schema
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.remote import Remote
from unpooled.secure import fingerprint, identity_bytes

NAMES = ["basel", "bern", "chur", "davos", "geneva", "lugano", "zurich"]
KEYS = {name: ec.derive_private_key(50 + i, ec.SECP384R1()) for i, name in enumerate(NAMES)}
ROWS = {name: np.random.default_rng(i).normal(size=(40 + i, 3)) for i, name in enumerate(NAMES)}
MIXTURE = 'name = "GaussianMixture"\nn_components = 2\nrandom_state = 0'


def study_of(names, title="Heart"):
    marks = {name: fingerprint(identity_bytes(KEYS[name])) for name in names}
    return study.parse(study_file(MIXTURE, True, marks).replace(b"Heart", title.encode()))


def make_site(name, approved, vault):
    policy = Policy(studies=[s.digest for s in approved], trust_coordinator=False)
    source = Source(Client(name, ROWS[name]), COLUMNS)
    return Site(name, source, vault, policy=lambda: policy, identity=KEYS[name])


def first_total(sites, approved, without=()):
    """The total of the study's first question in a run of its own, some nodes said to be away."""
    transport = MemoryTransport([site for site in sites if site.name not in without])
    fed = Remote(transport, columns=COLUMNS, min_clients=3, wait=0.5, timeout=2.0)
    fed.study = approved
    return Followed(SecureSum(fed)).sum(column_sums, None)


def test_a_second_run_without_a_site_does_not_show_what_that_site_sent(tmp_path):
    approved = study_of(NAMES)
    sites = [make_site(name, [approved], {}) for name in NAMES]
    assert first_total(sites, approved).rows == sum(len(rows) for rows in ROWS.values())
    assert first_total(sites, approved).rows == sum(len(rows) for rows in ROWS.values()), (
        "the same sites may run it again"
    )
    with pytest.raises(TooFewClients, match="other nodes: it differs by geneva"):
        first_total(sites, approved, without=["geneva"])


def test_runs_over_parts_of_the_sites_do_not_add_up_to_all_but_one(tmp_path):
    """The total of seven sites less those of three and of three others is what the seventh sent."""
    approved = study_of(NAMES)
    sites = [make_site(name, [approved], {}) for name in NAMES]
    first_total(sites, approved)
    for part in (NAMES[:3], NAMES[3:6]):
        with pytest.raises(TooFewClients, match="other nodes"):
            first_total(sites, approved, without=[name for name in NAMES if name not in part])


class Skipping(SecureSum):
    """A coordinator that gives its first masked sum another number than 1."""

    def _begun(self):
        new = self._hub is None
        hub = super()._begun()
        if new:
            hub.t = 2
            hub._mail.envelopes.clear()
        return hub


def test_another_number_of_a_sum_is_the_same_question(tmp_path, monkeypatch):
    """Sums were compared by the coordinator's number: SUM 2 of a second run was the first question, without geneva."""
    approved = study_of(NAMES)
    sites = [make_site(name, [approved], {}) for name in NAMES]
    first_total(sites, approved)
    monkeypatch.setattr(sys.modules[__name__], "SecureSum", Skipping)
    with pytest.raises(TooFewClients, match="other nodes: it differs by geneva"):
        first_total(sites, approved, without=["geneva"])


def test_two_studies_of_the_same_sites_do_not_show_a_site_that_is_said_to_be_lost_in_one(tmp_path):
    """Most studies have their first question in common: its total over all sites less that over all but one is the one's answer."""
    first, second = study_of(NAMES), study_of(NAMES, "Heart again")
    sites = [make_site(name, [first, second], {}) for name in NAMES]
    whole = first_total(sites, first)
    with pytest.raises(TooFewClients, match="another study of the same participants asked"):
        first_total(sites, second, without=["geneva"])
    assert first_total(sites, second).rows == whole.rows, "over the same sites it is answered"


def test_a_row_that_was_added_between_two_runs_is_not_shown(tmp_path):
    approved = study.parse(study_file(MIXTURE, secure=False))
    policy = Policy(studies=[approved.digest], trust_coordinator=False, min_rows_per_component=5)
    vault: dict = {}

    def run(rows, name):
        site = Site("basel", Source(Client("basel", rows), COLUMNS), vault, policy=lambda: policy)
        head = {
            "kind": "ask",
            "run": name,
            "round": 1,
            "seed": 0,
            "base": 0,
            "floor": 0,
            "ask": column_sums.name,
            "steps": [],
        }
        head |= {"schema": schema(column_sums.name), "options": {}, "columns": COLUMNS, "study": approved.digest}
        letters = wire.pack_letters({"study file": approved.content})
        wanted = {"table": approved.wanted.pack()}
        return wire.unpack(site.reply(wire.pack({**head, **wanted}, None), "", letters))

    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, 3))
    more = np.concatenate([first, rng.normal(size=(1, 3))])
    many = np.concatenate([first, rng.normal(size=(6, 3))])
    first[:, 2] = first[:, 2] > 0  # a column of few values
    many[:40, 2] = first[:, 2]
    more[:40, 2] = first[:, 2]
    one_value = first.copy()
    one_value[7, 1] += 1.0
    assert float(run(first, "r1").value().rows) == 40
    assert "values have changed" in run(more, "r2").head["refused"]
    assert "values have changed" in run(one_value, "r3").head["refused"]
    assert float(run(first[rng.permutation(40)], "r4").value().rows) == 40, "another order is the same table"
    assert float(run(many, "r5").value().rows) == 46


def test_a_study_like_an_approved_one_but_for_a_site_is_marked_in_its_review():
    first, second = study_of(NAMES), study_of(NAMES[:-1], "Heart again")
    source = Source(Client("basel", ROWS["basel"]), COLUMNS)
    found = review.review(second, "basel", source, Policy(studies=[first.digest]), [first])
    assert any("differ by zurich alone" in text for text in found.warnings)
    assert not any("differ by" in text for text in review.review(first, "basel", source, Policy(), [first]).warnings)
