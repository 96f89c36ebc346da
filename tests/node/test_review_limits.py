"""A review tells what the node's own limits would refuse; shipped limits let through what default models ask."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_study import COLUMNS, ROWS, masked_study

from unpooled.client import Client
from unpooled.node import limits, review
from unpooled.node.policy import Policy
from unpooled.node.questions import Refused
from unpooled.node.rows import Source

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
