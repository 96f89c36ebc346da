"""The start of a mixture, in a study: no round of it asks about a component of few rows again, and no region is summed over too few."""

import itertools

import numpy as np
import pytest
from test_few_rows import NAMES, TABLES, fit, totals_of
from test_study import MemoryTransport, coordinator, make_sites, masked_study

import unpooled as up
from unpooled import study
from unpooled.errors import BadParameter, TooFewClients
from unpooled.maths.mixture import Stats
from unpooled.models.initialization import column_sums

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ALONE = {name: rows.copy() for name, rows in TABLES.items()}
for other in NAMES[1:]:
    ALONE[other][0] = ALONE[other][1] + 0.1  # the person at the first site is the only one far from all others

STARTS = {
    "initialization.cells": 'name = "GaussianMixture"\nn_components = 5\nmax_iter = 30',
    "mixed.cells": 'name = "MixedMixture"\nn_components = 4\nmax_iter = 3',
    "mixture_imputer.cells": 'name = "MixtureImputer"\nn_components = 4\nprior = 1.0\nchoose_iter = 1\nmax_iter = 2',
}


def rounds_of_the_start(fed, question, most):
    """Rows by component, in the rounds of EM of the start: those in which no more components are asked about than the model has."""
    sums: list[Stats] = [stats for total in totals_of(fed, question) for stats in total]
    return [np.asarray(stats.n) for stats in sums if 1 < len(stats.n) <= most]


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("question", STARTS)
def test_no_round_of_a_start_is_over_one_person_alone(tmp_path, question, seed):
    """A component beside one person stayed there for a dozen rounds of the start: each showed this person's row to the last digit."""
    approved = masked_study(f"{STARTS[question]}\nrandom_state = {seed}")
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, ALONE)), approved)
    fit(approved, fed)
    assert not fed.journal.refusals
    counts = rounds_of_the_start(fed, question, most=5)
    assert len(counts) >= 4
    assert min(n.min() for n in counts) > 4, "the fewest rows are those of the whole region that was counted first"


def test_in_one_process_the_start_is_as_before():
    """The same fit outside of a study may have a component of one row: whoever holds all rows has nobody to hide them from."""
    model = study.parse(masked_study(f"{STARTS['initialization.cells']}\nrandom_state = 4").content).estimator()
    model.fit(up.federate(ALONE))
    assert model.n_components_ == 5


@pytest.mark.parametrize("question", STARTS)
def test_regions_are_summed_over_as_many_rows_as_the_study_says(tmp_path, question):
    """A study of `min_rows_per_component = 30` began with sums over regions of five rows."""
    approved = masked_study(f"{STARTS[question]}\nrandom_state = 3", min_rows_per_component=30)
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, TABLES, min_rows_per_component=30)), approved)
    fit(approved, fed)
    counts = [np.asarray(s.n) for total in totals_of(fed, question) for s in total]
    assert counts
    assert min(n.min() for n in counts) >= 30


def test_the_report_counts_components_that_the_start_left_out(tmp_path):
    approved = masked_study(
        'name = "GaussianMixture"\nn_components = 5\nmax_iter = 30\nrandom_state = 3', min_rows_per_component=100
    )
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, TABLES)), approved)
    model = fit(approved, fed)
    assert model.n_components_ < 5
    assert model.history_[-1]["left_out"] == 5 - model.n_components_


MIXED = 'name = "MixedMixture"\nn_components = 4\nmax_iter = 3\nkinds = ["real", "real", "binary"]\nrandom_state = 3'


def test_short_runs_of_mixed_columns_do_without_components_of_few_rows(tmp_path):
    rng = np.random.default_rng(0)
    data = {n: np.column_stack([rows[:, :2], rng.integers(0, 2, len(rows))]) for n, rows in ALONE.items()}
    approved = masked_study(MIXED)
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, data)), approved)
    fit(approved, fed)
    assert not fed.journal.refusals
    asked = [[np.asarray(s.gaussian.n) for s in total] for total in totals_of(fed, "mixed.e_step")]
    for before, after in itertools.pairwise(asked):
        if len(before) == len(after):  # the same mixtures a round later
            assert all((b >= 5).all() or len(a) < len(b) for b, a in zip(before, after))


def test_a_masked_study_of_a_model_that_gathers_is_refused_before_any_sum(tmp_path):
    """With mixed columns `OpenMixture` gathers at its end: until then its totals had shown one person, round after round."""
    rng = np.random.default_rng(0)
    data = {n: np.column_stack([rows[:, :2], rng.integers(0, 2, len(rows))]) for n, rows in ALONE.items()}
    approved = masked_study('name = "OpenMixture"\nkinds = ["real", "real", "binary"]\nrandom_state = 0')
    fed = coordinator(MemoryTransport(make_sites(tmp_path, approved, data)), approved)
    with pytest.raises(BadParameter, match="use MixedMixture or GaussianMixture"):
        fit(approved, fed)
    assert not fed._totals
    with pytest.raises(
        TooFewClients, match="the study ends here with an error: OpenMixture asks"
    ):  # a coordinator that goes on
        fed.sum(column_sums, None)
