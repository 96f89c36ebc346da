"""A review tells what the node's own limits would refuse; shipped limits let through what default models ask."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_few_rows import study_of
from test_study import COLUMNS, ROWS, masked_study

from unpooled.client import Client
from unpooled.node import limits, review
from unpooled.node.policy import Policy
from unpooled.node.questions import Refused
from unpooled.node.rows import Source
from unpooled.node.source import FileTable, TableSource

MODELS = (
    'name = "GaussianMixture"\nn_components = [1, 2, 3, 4, 5]\nrandom_state = 0',
    'name = "MixedMixture"\nn_components = 2\nrandom_state = 0',
    'name = "MixtureImputer"\nrandom_state = 0',
)


MIXTURE = 'name = "GaussianMixture"\nn_components = 2\nrandom_state = 0'


def reviewed(model, **bounds):
    table = Source(Client("basel", ROWS["basel"][:60]), COLUMNS)
    return review.review(masked_study(model), "basel", table, Policy(limits={**limits.DEFAULTS, **bounds}))


@pytest.mark.parametrize("model", MODELS)
def test_default_models_are_answered_under_the_shipped_limits(model):
    found = reviewed(model)
    assert found.failure == ""
    assert not [text for text in found.warnings if "would refuse" in text]


def test_a_question_beyond_a_limit_is_named_before_anybody_approves():
    found = reviewed(MIXTURE, components=3)
    assert found.warnings[0].startswith("this node would refuse: initialization.cell_counts was asked about")
    assert "[limits]" in found.warnings[0]


def test_parts_of_rows_are_told_in_words():
    assert [review.few_rows(n) for n in (0.3, 7, 1234.5)] == ["less than one row", "7 rows", "1,234 rows"]
    lines = review.explain(reviewed(MIXTURE))
    assert not any("e-" in line for line in lines if "SHA-256" not in line)


def test_a_coordinator_that_is_trusted_may_ask_about_few_models_at_once():
    down = tuple(range(17))
    with pytest.raises(Refused, match="17 models at once, and 'basel' allows 16: see candidates"):
        limits.check("mixture.e_step", {}, down, limits.DEFAULTS, "basel")
    limits.check("mixture.e_step", {}, down, limits.DEFAULTS, "basel", followed=True)
    with pytest.raises(Refused, match="257 models at once, and 'basel' allows 256: see components"):
        limits.check("mixture.e_step", {}, tuple(range(257)), limits.DEFAULTS, "basel", followed=True)


def test_a_rehearsal_that_stops_for_want_of_other_sites_rows_says_so(tmp_path):
    """A column may be constant at this site and vary at others: the real run goes on."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(60, 10, 90), "job": ["none", "office", "diver"] * 30, "ill": [0, 1, 1] * 30}
    )
    approved = study_of('name = "LinearRegression"')

    def reviewed_with(**columns):
        frame.assign(**columns).to_csv(tmp_path / "basel.csv", index=False)
        source = TableSource("basel", FileTable(tmp_path / "basel.csv"), label="ill")
        return review.review(approved, "basel", source, Policy(min_rows_per_component=5))

    assert reviewed_with().failure == ""
    found = reviewed_with(age=61.0)
    assert found.alone
    assert "constant" in found.failure
    assert any("with the rows of the other sites the study may go on" in line for line in review.explain(found))
    unknown = reviewed_with(job="pilot")
    assert unknown.failure
    assert not unknown.alone
