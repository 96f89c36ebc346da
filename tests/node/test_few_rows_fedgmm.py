"""FedGMM in a study: no sums over few rows, of Gaussians, of learners, or of a class within a Gaussian."""

import itertools

import numpy as np
import pytest
from test_few_rows import KEYS, NAMES, Greedy, fit, totals_of
from test_study import COLUMNS, MemoryTransport, coordinator, masked_study

import unpooled as up
from unpooled.client import Client
from unpooled.errors import TooFewClients
from unpooled.models.fedgmm import few_rows
from unpooled.models.fedgmm.rounds import LabelMeans
from unpooled.node.ledger import Ledger
from unpooled.node.policy import Policy
from unpooled.node.rows import Source
from unpooled.node.site import Site

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ROUNDS = {"newton": "", "sgd": '\noptimizer = "sgd"\nlr = 0.1'}


def rows():
    """Two groups of rows, and one person far from both; in the second group two people alone are ill."""
    rng = np.random.default_rng(0)
    x = {name: rng.normal(size=(120, 3)) for name in NAMES}
    y = {name: (rows[:, 1] > 0).astype(int) for name, rows in x.items()}
    for name in NAMES:
        x[name][60:, 0] += 8
        y[name][60:] = 0
    x["basel"][0] = [4.0, 12.0, -12.0]
    y["zurich"][70:72] = 1
    return x, y


X, Y = rows()


def study_of(more="", least=5):
    model = f'name = "FedGMM"\nn_gaussians = 3\nclasses = [0, 1]\nmax_iter = 15\nrandom_state = 0{more}'
    return masked_study(model, min_rows_per_component=least)


def federation(tmp_path, approved):
    policy = Policy(studies=[approved.digest], trust_coordinator=False)
    sites = []
    for name in NAMES:
        source = Source(Client(name, X[name], Y[name]), COLUMNS)
        ledger = Ledger(tmp_path / f"{name}.jsonl")
        sites.append(Site(name, source, {}, policy=lambda: policy, ledger=ledger, identity=KEYS[name]))
    return coordinator(MemoryTransport(sites), approved, timeout=20)


def held(fed, solver):
    """Rows of every Gaussian and of every learner, in each round of each candidate."""
    found = [up.stats for total in totals_of(fed, f"fedgmm.{solver}_round") for up in total]
    return [np.concatenate([s.gaussians.n, s.pairs.sum(0)]) for s in found]


@pytest.mark.parametrize("learners", [1, 3])
@pytest.mark.parametrize("solver", ROUNDS)
def test_no_round_is_over_one_person_alone(tmp_path, solver, learners):
    approved = study_of(f"\nn_learners = {learners}{ROUNDS[solver]}")
    fed = federation(tmp_path, approved)
    model = fit(approved, fed)
    assert not fed.journal.refusals
    warm = [stats.n for total in totals_of(fed, "fedgmm.warm_up") for stats in total]
    assert min(n.min() for n in warm + held(fed, solver)) >= 5
    assert len(model.weights_) < 3
    assert model.history_[-1]["left_out"] >= 1
    assert set(model.predict(X["basel"][:5], client=None)) <= {0, 1}


def test_without_the_rule_the_row_of_one_person_is_shown_to_the_last_digit(tmp_path):
    """The attack: a Gaussian that begins beside a person who is far from all others shows this person's row in every round."""
    approved = study_of("\nn_learners = 1", least=0)
    fed = federation(tmp_path, approved)
    fit(approved, fed)
    counts = held(fed, "newton")
    assert sum(n.min() < 1.01 for n in counts) > 5
    (last,) = totals_of(fed, "fedgmm.newton_round")[-1:]
    gaussians = last[0].stats.gaussians
    alone = int(gaussians.n.argmin())
    asked = fit(approved, up.federate({name: (X[name], Y[name]) for name in NAMES})).means_
    person = gaussians.x[alone] / gaussians.n[alone] + asked[np.argmin(asked[:, 2])]
    np.testing.assert_allclose(person, X["basel"][0], atol=1e-6)


def test_a_gaussian_that_was_left_out_is_not_asked_about_again(tmp_path):
    approved = study_of("\nn_learners = 1")
    fed = federation(tmp_path, approved)
    fit(approved, fed)
    sizes = [len(total[0].stats.gaussians.n) for total in totals_of(fed, "fedgmm.newton_round")]
    assert all(after <= before for before, after in itertools.pairwise(sizes))


def test_a_coordinator_that_keeps_gaussians_of_few_rows_is_refused(tmp_path):
    approved = study_of("\nn_learners = 1")
    fed = federation(tmp_path, approved)
    with pytest.raises(TooFewClients, match="where the study asks"):
        fit(approved, Greedy(fed))


def test_a_study_without_people_alone_fits_what_one_process_fits(tmp_path):
    """The counts cost rounds and change no number."""
    approved = masked_study(
        'name = "FedGMM"\nn_gaussians = 2\nn_learners = 1\nclasses = [0, 1]\nmax_iter = 12\nrandom_state = 0'
    )
    near = {name: np.where(np.abs(rows) > 11, 0.0, rows) for name, rows in X.items()}
    policy = Policy(studies=[approved.digest], trust_coordinator=False)
    sites = [
        Site(n, Source(Client(n, near[n], Y[n]), COLUMNS), {}, policy=lambda: policy, identity=KEYS[n]) for n in NAMES
    ]
    there = fit(approved, coordinator(MemoryTransport(sites), approved, timeout=20))
    here = fit(approved, up.federate({n: (near[n], Y[n]) for n in NAMES}))
    np.testing.assert_allclose(there.means_, here.means_, rtol=1e-7)
    np.testing.assert_allclose(there.weights_, here.weights_, rtol=1e-7)


# ---- a class within a Gaussian ----


def test_sums_over_a_class_within_a_gaussian_are_over_enough_rows(tmp_path):
    """Two ill people in a group of healthy ones: the sum of their rows was asked for."""
    for least in (0, 5):
        approved = study_of("\nn_learners = 1", least=least)
        fed = federation(tmp_path / str(least), approved)
        fit(approved, fed)
        found: list[LabelMeans] = [means for total in totals_of(fed, "fedgmm.label_means") for means in total]
        counts = np.concatenate([means.n.ravel() for means in found])
        assert (counts[counts > 0].min() >= 5) == (least == 5)
        for means in found:
            assert not means.x[means.n == 0].any()


CELLS = {
    "enough rows": ([[9, 8, 7]], [[1, 1, 1]]),
    "none": ([[9, 0, 7]], [[1, 0, 1]]),
    "one few class hides the next": ([[2, 8, 90]], [[0, 0, 1]]),
    "two few classes hide each other": ([[3, 90, 4]], [[0, 1, 0]]),
    "all": ([[2, 90]], [[0, 0]]),
    "each gaussian by itself": ([[2, 90], [9, 9]], [[0, 0], [1, 1]]),
}


@pytest.mark.parametrize(("n", "mask"), CELLS.values(), ids=CELLS)
def test_what_is_left_out_is_enough_together(n, mask):
    """The sum over the rest of a Gaussian's rows would show a class that is left out alone."""
    assert few_rows.shown(np.array(n, float), 5) == mask
