"""A curious coordinator with real messages against a real node: every attack that ever worked is refused here.

The shipped policy answers approved studies only, so the registry is asked in full: whoever adds a question is tested too. A site that
trusts its coordinator (`trust_coordinator = true`) still keeps the bounds of its policy.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from unpooled import study, wire
from unpooled.client import REGISTRY, STEP, Client, Step
from unpooled.maths.mixture import Params
from unpooled.models import initialization
from unpooled.models.private.frame import column_moments
from unpooled.names import HOMES, import_home
from unpooled.node import budget, policy
from unpooled.node.computing import Answered
from unpooled.node.ledger import Ledger, entries
from unpooled.node.questions import options, schema
from unpooled.node.rows import Source
from unpooled.node.site import Site

COLUMNS = ["age", "bmi", "systolic", "glucose"]
STUDY = b"""
[study]
title = "Clusters"
[participants]
zurich = ""
basel = ""
bern = ""
[model]
name = "GaussianMixture"
n_components = 2
init_params = "random"
random_state = 0
[data]
columns = ["age", "bmi", "systolic", "glucose"]
"""


def make_rows():
    rng = np.random.default_rng(11)
    age = rng.integers(18, 95, 300) + rng.integers(0, 365, 300) / 365.25
    return np.column_stack([age, rng.normal(26, 4, 300), rng.normal(130, 15, 300), np.exp(rng.normal(4.6, 0.2, 300))])


ROWS = make_rows()


def shipped(tmp_path, **changes) -> policy.Policy:
    """The policy that `unpooled node init` writes, with some lines changed."""
    path = tmp_path / "policy.toml"
    lines = policy.TEMPLATE.splitlines()
    for key, value in changes.items():
        lines = [f"{key} = {value}" if line.startswith(f"{key} =") else line for line in lines]
    path.write_text("\n".join(lines))
    return policy.read(path)


class Coordinator:
    """Speaks to one node as `remote` does, and asks whatever it likes."""

    def __init__(self, tmp_path, labels=None, **changes):
        self.rules = shipped(tmp_path, **changes)
        self.ledger = tmp_path / "ledger.jsonl"
        source = Source(Client("zurich", ROWS.copy(), labels), COLUMNS)
        self.site = Site("zurich", source, {}, policy=lambda: self.rules, ledger=Ledger(self.ledger))
        self.rounds = itertools.count(1)

    def ask(self, name, down=None, letters=None, steps=(), run="r1", **more):
        head = {"kind": "ask", "run": run, "round": next(self.rounds), "seed": 0, "base": 0, "floor": 0, "ask": name}
        head |= {
            "schema": schema(name),
            "options": {},
            "steps": list(steps),
            "columns": COLUMNS,
            "to": "zurich",
            **more,
        }
        return wire.unpack(self.site.reply(wire.pack(head, down), "", wire.pack_letters(letters or {})))


def all_questions():
    for room in HOMES:
        import_home(f"{room}.anything")
    return sorted(name for name in REGISTRY if name.rpartition(".")[0] in HOMES)


@pytest.mark.parametrize("name", all_questions())
def test_under_the_shipped_policy_no_question_is_answered_without_a_study(tmp_path, name):
    reply = Coordinator(tmp_path).ask(name)
    assert reply.head["refused"]
    assert reply.value() is None


@pytest.mark.parametrize(
    "name", [n for n in all_questions() if n != "initialization.look" and REGISTRY[n].kind != STEP]
)
def test_within_an_approved_study_no_question_is_answered_but_its_next(tmp_path, name):
    approved = study.parse(STUDY)
    coordinator = Coordinator(tmp_path, studies=f'["{approved.digest}"]')
    reply = coordinator.ask(name, letters={"study file": STUDY}, study=approved.digest)
    assert reply.head["refused"]
    assert reply.value() is None


def test_the_study_s_own_next_question_is_answered_once_its_totals_hide_enough(tmp_path):
    approved = study.parse(STUDY)
    coordinator = Coordinator(tmp_path, studies=f'["{approved.digest}"]')
    reply = coordinator.ask("initialization.look", letters={"study file": STUDY}, study=approved.digest)
    assert "refused" not in reply.head
    assert float(reply.value().rows) == 300


# ---- a site that trusts its coordinator keeps its bounds ----


def trusting(tmp_path, **changes):
    return Coordinator(tmp_path, **{"trust_coordinator": "true", **changes})


FRAME = initialization.Frame(np.zeros(4), np.ones(4), np.asarray(1.0))


def half_space(cut: float) -> Params:
    """Two components alike but in age: a row belongs to the second if its age is above the cut."""
    means = np.tile(ROWS.mean(0), (2, 1))
    scale = ROWS.std(0)
    means[:, 0] = cut - scale[0], cut + scale[0]
    covs = np.tile(scale**2 * 1e6, (2, 1))
    covs[:, 0] = 2 * scale[0] * 1e-7
    return Params(np.full(2, 0.5), means, covs)


ATTACKS = {
    "a cluster for each row": ("initialization.local_centres", FRAME, {"k": 10**6, "min_count": 0.0}, "k = 1e"),
    "clusters of one row": ("initialization.local_centres", FRAME, {"k": 200, "min_count": 0.0}, "min_count = 0"),
    "thousands of mixtures": (
        "mixture.e_step",
        tuple(half_space(c) for c in np.linspace(30, 80, 60)),
        {"shape": "diag"},
        "60 models at once",
    ),
    "one row alone": (
        "mixture.e_step",
        (half_space(np.sort(ROWS[:, 0])[-2] + 1e-9),),
        {"shape": "diag"},
        "fewer than 5 rows",
    ),
    "all rows but one": (
        "mixture.e_step",
        (half_space(np.sort(ROWS[:, 0])[0] + 1e-9),),
        {"shape": "diag"},
        "fewer than 5 rows",
    ),
    "fewer rows than one": (
        "mixture.e_step",
        (half_space(50.0)._replace(weights=np.array([1 - 1e-12, 1e-12]), covs=np.tile(ROWS.std(0) ** 2, (2, 1))),),
        {"shape": "diag"},
        "fewer than 5 rows",
    ),
    "as many models as fill a disk": ("fedconceptem.initialise", None, {"models": 15_000_000}, "models = 1.5e"),
    "row by row": ("afcl.moves", None, {"batch": 1}, "no node answers it"),
    "the rows as experts": ("fedloc.expert", None, {"inducing": 300}, "no node answers it"),
    "steps on one row": ("fedavg.local_epochs", None, {"trainer": {"batch_size": 1}}, "batch_size = 1"),
    "a row held out": ("regression.statistics", None, {"spec": {}, "share": 0.99, "seed": 1}, "share = 0.99"),
}


@pytest.mark.parametrize(("name", "down", "asked", "why"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_that_once_gave_rows_is_refused(tmp_path, name, down, asked, why):
    import_home(name)
    rules = {"gather": "true", "max_parameters_per_row": 100}
    coordinator = trusting(tmp_path, **rules)
    given = {key: value for key, value in asked.items() if key in options(REGISTRY[name])}
    reply = coordinator.ask(name, down, options=given)
    assert why in reply.head["refused"]
    assert reply.value() is None
    assert [e["kind"] for e in entries(coordinator.ledger)] == ["refused"], "and its owner can see that it was tried"


def test_a_node_never_freezes_because_a_coordinator_says_so(tmp_path):
    import_home("faults.misbehave")
    plan = {"drop": {}, "delay": {"1": {"zurich": 1e9}}, "corrupt": {}}
    reply = trusting(tmp_path).ask("initialization.look", steps=[["faults.misbehave", plan]])
    assert "no node answers it" in reply.head["refused"]


def test_refusals_are_charged_so_that_nobody_asks_until_something_gives(tmp_path):
    coordinator = trusting(tmp_path, rounds_per_day=3)
    import_home("fedconceptem.initialise")
    told = [
        coordinator.ask("fedconceptem.initialise", None, options={"models": 10**7}).head["refused"] for _ in range(5)
    ]
    assert ["24 hours" in text for text in told] == [False, False, False, True, True]


def test_a_refusal_does_not_quote_a_label(tmp_path):
    """ "label 'HIV' is outside the known classes" told the coordinator what nobody should know."""
    from unpooled.baselines.fedavg import Model

    labels = np.array(["HIV"] + ["well"] * 299, dtype=object)
    coordinator = Coordinator(tmp_path, labels, trust_coordinator="true", max_parameters_per_row=100)
    import_home("fedavg.local_epochs")
    trainer = {"labels": ["well", "ill"], "inputs": 4, "learner": "linear", "batch_size": 64}
    reply = coordinator.ask("fedavg.local_epochs", Model(np.zeros((1, 10))), options={"trainer": trainer})
    assert reply.head["refused"].endswith("its log says why")
    assert "HIV" not in reply.head["refused"]
    assert "HIV" not in coordinator.ledger.read_text()


def test_invented_peers_neither_lift_the_rule_of_few_rows_nor_thin_out_the_noise(tmp_path):
    import_home("secure.mask")
    mask = ["secure.mask", {"t": 1, "cohort": ["a", "b", "zurich"], "members": ["a", "b", "zurich"]}]
    down = (half_space(np.sort(ROWS[:, 0])[-2] + 1e-9),)
    reply = trusting(tmp_path, max_parameters_per_row=100).ask(
        "mixture.e_step", down, steps=[mask], options={"shape": "diag"}
    )
    assert "fewer than 5 rows" in reply.head["refused"]
    cohort = [f"n{i:03}" for i in range(300)]
    wide = Step("secure.mask", {"t": 1, "cohort": cohort, "members": cohort})
    ask = replace(column_moments, steps=(Step(budget.LOOK, {"mu2": 1.0}), wide))
    answered = Answered(ask, None, np.zeros(3), Client("zurich", ROWS), 100)
    noisy = {
        pinned: budget.add_noise(answered, budget.Budget(9.0, 1e-6), {}, bytes(32), pinned)[0].up
        for pinned in (False, True)
    }
    assert np.abs(noisy[False]).max() > 5 * np.abs(noisy[True]).max()
