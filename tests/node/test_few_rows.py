"""A study shows no sums over few rows: components, rare levels, classes and sites alone, against a coordinator that would go on."""

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_shelf_studies import KEYS
from test_study import (
    COLUMNS,
    MIXTURE,
    NAMES,
    MemoryTransport,
    coordinator,
    fingerprints,
    make_sites,
    masked_study,
    study_file,
)

import unpooled as up
from unpooled import study
from unpooled.client import Client
from unpooled.errors import BadData, BadParameter, TooFewClients
from unpooled.federation import Layer
from unpooled.layers.followed import Followed
from unpooled.layers.secure import SecureSum
from unpooled.node import disclosures, limits, review
from unpooled.node.ledger import Ledger
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site
from unpooled.node.source import FileTable, TableSource
from unpooled.remote import Remote

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SMALL = MIXTURE.replace("n_components = 2", "n_components = 5").replace("random_state = 0", "random_state = 3")


def tables():
    """Rows of three sites, three of them far from all others: one person at each site."""
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(120, 3)) + i for i, name in enumerate(NAMES)}
    for name in NAMES:
        rows[name][0] = [40.0, 40.0, -40.0] + 0.1 * rng.normal(size=3)
    return rows


TABLES = tables()


def totals_of(fed, question):
    return [kept["total"] for _, kept in sorted(fed._totals.items()) if kept["question"] == question]


def fit(approved, fed):
    model = approved.estimator()
    return model.fit(fed)


@pytest.mark.parametrize("more", ["", "\naccelerate = true", "\npersonal_weights = true"])
def test_no_total_of_a_mixture_study_is_over_few_rows(tmp_path, more):
    approved = masked_study(SMALL + more)
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, TABLES)), approved)
    model = fit(approved, fed)
    assert not fed.journal.refusals
    question = "mixture.personal_e_step" if "personal" in more else "mixture.e_step"
    counts = np.concatenate([stats.n for total in totals_of(fed, question) for stats in total])
    assert counts.min() >= approved.min_rows_per_component, "no total is that of the three people alone"
    assert (model.weights_ * model.n_rows_).min() >= approved.min_rows_per_component
    assert model.n_components_ < 5
    assert model.history_[-1]["left_out"] == 5 - model.n_components_, "the report says so"


def test_in_one_process_the_same_mixture_keeps_its_components():
    model = study.parse(study_file(SMALL, secure=False)).estimator().fit(up.federate(TABLES))
    assert model.n_components_ == 5
    assert (model.weights_ * model.n_rows_).min() < 5


class Greedy(Layer):
    """A coordinator that keeps components of few rows, whatever the study says."""

    study = SimpleNamespace(min_rows_per_component=0)


def test_a_coordinator_that_keeps_a_component_of_few_rows_is_refused(tmp_path):
    approved = masked_study(SMALL)
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, TABLES)), approved)
    with pytest.raises(TooFewClients, match=r"where the study asks initialization\.cell_counts"):
        fit(approved, Greedy(fed))


@pytest.mark.parametrize(
    "model",
    [
        'name = "MixedMixture"\nn_components = 4',
        'name = "MixtureImputer"\nn_components = 4\nprior = 1.0\nchoose_iter = 3',
    ],
)
def test_other_mixtures_do_without_components_of_few_rows_too(tmp_path, model):
    approved = masked_study(f"{model}\nrandom_state = 3\nmax_iter = 6")
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, TABLES)), approved)
    fit(approved, fed)
    assert not fed.journal.refusals
    question = "mixed.e_step" if "Mixed" in model else "mixture_imputer.e_step"
    totals = [stats for total in totals_of(fed, question) for stats in total]
    counts = [np.asarray(getattr(stats, "gaussian", stats).n) for stats in totals]
    for before, after in itertools.pairwise(counts):
        assert len(after) < len(before) or (before >= 5).all(), "a component of few rows was asked about again"


def test_a_node_refuses_a_study_that_asks_for_fewer_rows_than_its_policy(tmp_path):
    approved = masked_study()
    sites = make_sites(tmp_path, approved, TABLES, min_rows_per_component=8)
    with pytest.raises(TooFewClients, match="write min_rows_per_component = 8 under"):
        fit(approved, coordinator(MemoryTransport(sites), approved))
    table = Source(Client("basel", TABLES["basel"]), COLUMNS)
    found = review.review(approved, "basel", table, Policy(min_rows_per_component=8))
    assert "write min_rows_per_component = 8" in found.warnings[0]
    content = study_file(MIXTURE, marks=fingerprints(), min_rows_per_component=8)
    assert study.parse(content).min_rows_per_component == 8


@pytest.mark.parametrize("model", ["KaplanMeier", "Cox", "Describe"])
def test_a_node_refuses_a_model_whose_least_count_is_below_its_own(model):
    approved = masked_study(f'name = "{model}"\nmin_count = 1\nrandom_state = 0')
    rules = Policy(limits=limits.DEFAULTS)
    table = Source(Client("basel", TABLES["basel"]), COLUMNS)
    found = review.review(approved, "basel", table, rules)
    assert f"this node would refuse: {model} was asked with min_count = 1" in found.warnings[0]


# ---- rare levels, classes and outcomes ----

KINDS = """[data]
label = "ill"
[columns]
age = {kind = "real"}
job = {kind = "category", levels = ["none", "office", "diver"]}
"""


def registers(divers: int, ill: int = 40):
    """Three sites; so many people at the first are divers, and so many ill."""
    rng = np.random.default_rng(1)
    found = {}
    for i, name in enumerate(NAMES):
        job = np.array(["none", "office"])[rng.integers(0, 2, 80)]
        state = np.zeros(80, int)
        if i == 0:
            job[:divers] = "diver"
            state[80 - ill :] = 1
        found[name] = pd.DataFrame({"age": rng.normal(60, 10, 80).round(2), "job": job, "ill": state})
    return found


def study_of(model):
    marks = fingerprints()
    people = "".join(f'{name} = "{mark}"\n' for name, mark in marks.items())
    text = f'[study]\ntitle = "Jobs"\n[participants]\n{people}[model]\n{model}\nrandom_state = 0\n{KINDS}[layers]\nsecure = true\n'
    return study.parse(text.encode())


def federation(approved, data, tmp_path):
    policy = Policy(studies=[approved.digest], trust_coordinator=False)
    sites = []
    for name, table in data.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        source = TableSource(name, FileTable(tmp_path / f"{name}.csv"), label="ill")
        ledger = Ledger(tmp_path / f"{name}.jsonl")
        sites.append(Site(name, source, {}, policy=lambda: policy, ledger=ledger, identity=KEYS[name]))
    fed = Remote(MemoryTransport(sites), study=approved, names=NAMES, min_clients=3, wait=5, timeout=20)
    return Followed(SecureSum(fed), None)


WITH_LEVELS = {
    "LinearRegression": "",
    "GLM": 'family = "binomial"\nalpha = 1.0',
    "LogisticRegression": "classes = [0, 1]",
    "BayesianRegression": "",
    "Pooling": 'family = "binomial"\nsites = false\ncv = 2\nem_rounds = 1',
    "FedConceptEM": "classes = [0, 1]\nmax_iter = 1",
    "MixtureImputer": "n_components = 2\nprior = 1.0\nchoose_iter = 1\nmax_iter = 2",
}


@pytest.mark.parametrize("model", WITH_LEVELS)
def test_a_study_stops_before_it_sums_over_a_level_that_few_hold(tmp_path, model):
    """The second moments of an indicator of one person are the row of that person."""
    approved = study_of(f'name = "{model}"\n{WITH_LEVELS[model]}')
    fed = federation(approved, registers(divers=3), tmp_path)
    with pytest.raises(BadData, match=r"level .* is held by 3 at all sites together"):
        fit(approved, fed)
    assert len(fed._totals) == 1, "the totals of a count alone"


@pytest.mark.parametrize("model", ["GLM", "LogisticRegression", "Pooling", "FedConceptEM"])
def test_a_study_stops_before_it_sums_over_a_class_that_few_have(tmp_path, model):
    """The first gradient of a class of one person is the row of that person."""
    approved = study_of(f'name = "{model}"\n{WITH_LEVELS[model]}')
    fed = federation(approved, registers(divers=20, ill=2), tmp_path)
    with pytest.raises(BadData, match=r"(class 1|outcome 1) is held by 2 at all sites together"):
        fit(approved, fed)
    assert len(fed._totals) <= 2


def test_the_review_names_levels_of_few_rows_and_goes_on(tmp_path):
    approved = study_of('name = "LinearRegression"')
    table = registers(divers=2)["basel"]
    table.to_csv(tmp_path / "basel.csv", index=False)
    source = TableSource("basel", FileTable(tmp_path / "basel.csv"), label="ill")
    found = review.review(approved, "basel", source, Policy())
    assert found.failure == ""
    assert any(text.startswith("level 'diver' of 'job' is held by 2 in this table") for text in found.warnings)


def test_a_group_of_few_people_ends_a_survival_study(tmp_path):
    approved = masked_study(
        'name = "KaplanMeier"\nby = "age"\nduration = "bp"\nevent = "chol"\nmin_count = 5\nrandom_state = 0'
    )
    rng = np.random.default_rng(0)
    data = {
        n: np.column_stack([rng.integers(0, 2, 60), rng.integers(1, 30, 60), rng.integers(0, 2, 60)]) for n in NAMES
    }
    data["basel"][:2, 0] = 7  # two people of a rare disease
    sites = make_sites(tmp_path, approved, {n: table.astype(float) for n, table in data.items()})
    fed = coordinator(MemoryTransport(sites), approved)
    with pytest.raises(BadData, match="group 7 of by= is held by 2 at all sites together"):
        fit(approved, fed)
    assert not totals_of(fed, "survival.exits")


@pytest.mark.parametrize("model", ["KaplanMeier", "Cox"])
def test_a_survival_study_of_few_events_ends_before_their_times_are_looked_for(tmp_path, model):
    approved = masked_study(f'name = "{model}"\nduration = "bp"\nevent = "chol"\nmin_count = 5\nrandom_state = 0')
    rng = np.random.default_rng(0)
    data = {n: np.column_stack([rng.normal(size=60), rng.exponential(size=60), np.zeros(60)]) for n in NAMES}
    data["basel"][:4, 2] = 1.0
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, data)), approved)
    with pytest.raises(BadData, match="the event is held by 4 at all sites together"):
        fit(approved, fed)
    assert len(fed._totals) == 1


def test_a_pooling_study_stops_before_it_fits_without_a_fold_of_few_rows(tmp_path):
    """The sums of all rows less those without a fold are the fold's: of 42 rows in ten folds, three people's."""
    rng = np.random.default_rng(0)
    for rows, cv, stops in ((14, 10, True), (14, 5, False)):
        model = f'name = "Pooling"\nsites = false\ncv = {cv}\nem_rounds = 1\nrandom_state = 0'
        approved = masked_study(model)
        policy = Policy(studies=[approved.digest], trust_coordinator=False)
        clients = [Client(n, rng.normal(size=(rows, 3)), rng.normal(size=rows)) for n in NAMES]
        sites = [
            Site(c.name, Source(c, COLUMNS), {}, policy=lambda p=policy: p, identity=KEYS[c.name]) for c in clients
        ]
        fed = coordinator(MemoryTransport(sites), approved)
        if stops:
            with pytest.raises(BadData, match=r"fold 5 of cv=10 is held by 3 at all sites together"):
                fit(approved, fed)
            assert len(fed._totals) == 1
        else:
            fit(approved, fed)
            counts = totals_of(fed, "pooling.newton")[0].common.n
            assert (counts[-1] - counts[:-1]).min() >= 5


@pytest.mark.parametrize("rare", [4, 5])
def test_sums_by_value_are_over_no_fewer_rows_than_the_study_says(tmp_path, rare):
    approved = masked_study('name = "BayesianRegression"\ngroup_by = 0\nrandom_state = 0')
    rng = np.random.default_rng(0)
    x = {n: np.column_stack([np.arange(60) % 3, rng.normal(size=(60, 2))]).astype(float) for n in NAMES}
    x["basel"][:rare, 0] = 9.0
    policy = Policy(studies=[approved.digest], trust_coordinator=False)
    sites = [
        Site(n, Source(Client(n, x[n], x[n][:, 1]), COLUMNS), {}, policy=lambda: policy, identity=KEYS[n])
        for n in NAMES
    ]
    model = fit(approved, coordinator(MemoryTransport(sites), approved))
    assert len(model.design_.groups.keys) == (4 if rare == 5 else 3)


# ---- sites alone ----


@pytest.mark.parametrize("where", ["model", "federation"])
def test_a_masked_study_asks_all_of_its_sites(where):
    """Totals over each three of four sites, at the same parameters, are four equations for the four sites' own answers."""
    line = "\nfraction = 0.67"
    content = study_file(MIXTURE + (line if where == "model" else ""), marks=fingerprints())
    content += b"[federation]\nfraction = 0.67\n" if where == "federation" else b""
    with pytest.raises(BadParameter, match="show what single ones sent; use fraction = 1"):
        study.parse(content)


def test_a_node_follows_no_masked_study_into_a_part_of_its_sites(tmp_path, monkeypatch):
    content = study_file(MIXTURE.replace("GaussianMixture", "FedConceptEM").split("\n")[0], marks=fingerprints())
    content = content.replace(b"[data]", b"random_state = 0\nclasses = [0, 1]\nfraction = 0.67\nmax_iter = 2\n[data]")
    monkeypatch.setattr(study, "_check_fraction", lambda config, where: None)  # a model with a cohort of its own making
    approved = study.parse(content)
    rng = np.random.default_rng(0)
    policy = Policy(studies=[approved.digest], trust_coordinator=False)
    sites = []
    for name in NAMES:
        source = Source(Client(name, TABLES[name], rng.integers(0, 2, 120)), COLUMNS)
        sites.append(Site(name, source, {}, policy=lambda: policy, ledger=Ledger(tmp_path / name), identity=KEYS[name]))

    class Sampling(SecureSum):
        """Asks some of the nodes that exchanged keys."""

        def sample(self, share, rng):
            return self

    remote = Remote(
        MemoryTransport(sites), study=approved, names=NAMES, columns=COLUMNS, min_clients=3, wait=5, timeout=5
    )
    fed = Followed(Sampling(remote), None)
    fed.sample = lambda share, rng: fed
    with pytest.raises(TooFewClients, match="asks all of its sites in every sum"):
        fit(approved, fed)


# ---- what cannot be kept from the coordinator is said in words ----


def test_every_model_whose_totals_tell_of_few_says_so_in_the_review():
    approved = masked_study('name = "KaplanMeier"\nmin_count = 5\nrandom_state = 0')
    table = Source(Client("basel", TABLES["basel"]), COLUMNS)
    warned = review.review(approved, "basel", table, Policy()).warnings
    assert any("the exact time at which each person died" in text for text in warned)
    assert set(disclosures.SENTENCES) <= {*up.MODELS, "IFCA", "FeSEM", "FedSoft"}


def test_weights_of_rows_are_named_in_the_review():
    content = study_file(MIXTURE, marks=fingerprints()).replace(b"[data]\n", b'[data]\nweight = "cost"\n')
    table = Source(Client("basel", TABLES["basel"]), COLUMNS)
    assert any(
        "weighted by column 'cost'" in text
        for text in review.review(study.parse(content), "basel", table, Policy()).warnings
    )


def test_the_report_says_that_components_were_left_out():
    from unpooled.report.page import facts

    history = [{"round": 1, "seconds": 0.1, "left_out": 2}]
    run = SimpleNamespace(model=None, begun={}, summary={}, ledger=[], clients={}, history=history, facts={})
    assert facts(run)["components of few rows left out"] == "2"
