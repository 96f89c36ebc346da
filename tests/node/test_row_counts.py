"""Every count of rows in a message is marked as one, so that the review reports it and a node's policy holds for it."""

from typing import get_args, get_origin

import numpy as np
import pandas as pd
import pytest
from test_few_rows import COLUMNS, NAMES, study_of
from test_study import masked_study

from unpooled import tree
from unpooled.client import GATHER, REGISTRY, SUM, Client
from unpooled.models.pooling.mixtures import ComponentSums, PartialSums
from unpooled.names import HOMES, import_home
from unpooled.node import review
from unpooled.node.policy import Policy
from unpooled.node.questions import Refused
from unpooled.node.rows import Source
from unpooled.node.source import FileTable, TableSource

WORDS = {"n", "rows", "seen", "missing", "outside", "others", "held", "bad", "died", "censored", "pairs", "mass"}
NOT_ROWS = {
    "fedconceptem.ScoreMeans.n": "clients",
    "pooling.GroupSums.n": "all rows of each site, times the probability that it is in the group",
}


def leaves(schema, path):
    """(message.field, annotation) of everything in a message."""
    if hasattr(schema, "_fields"):
        for name, part in tree.hints(schema).items():
            yield from leaves(part, f"{getattr(schema, '__message__', schema.__name__)}.{name}")
    elif get_origin(schema) in (tuple, dict):
        for part in get_args(schema):
            yield from leaves(part, path)
    else:
        yield path, schema


def answers():
    """The fields of every answer that is not noise."""
    for room in HOMES:
        import_home(f"{room}.anything")
    asked = [REGISTRY[n] for n in REGISTRY if n.rpartition(".")[0] in HOMES and not n.startswith("private.")]
    return dict(leaf for ask in asked if ask.kind in (SUM, GATHER) for leaf in leaves(ask.types[1], ask.name))


def test_every_count_of_rows_in_an_answer_is_marked():
    fields = {path: kind for path, kind in answers().items() if path.rpartition(".")[2] in WORDS}
    assert len(fields) > 50
    unmarked = {path for path, kind in fields.items() if not list(tree.row_schemas(kind))}
    assert unmarked == set(NOT_ROWS)


def reviewed(approved, table):
    return {q.name: q.least_rows for q in review.review(approved, "basel", table, Policy()).questions}


def test_the_review_reports_columns_of_few_values_of_a_design(tmp_path):
    """Number and sum of a column's values are asked for together: with two values there, their sum is told."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(60, 10, 90), "job": ["none", "office", "diver"] * 30, "ill": [0, 1, 1] * 30}
    )
    frame.loc[2:, "age"] = np.nan
    frame.to_csv(tmp_path / "basel.csv", index=False)
    approved = study_of('name = "FedGMM"\nn_gaussians = 1\nn_learners = 1\nclasses = [0, 1]\nmax_iter = 5')
    source = TableSource("basel", FileTable(tmp_path / "basel.csv"), label="ill")
    warned = review.review(approved, "basel", source, Policy(min_rows_per_component=5)).warnings
    assert any(text.startswith("tables.moments has sums over 2 rows") for text in warned)


MODELS = {
    "glm.look": 'name = "GLM"\nfamily = "binomial"',
    "glm.class_counts": 'name = "LogisticRegression"\nclasses = [0, 1]',
    "pooling.look": 'name = "Pooling"\nfamily = "binomial"\nsites = false\ncv = 2\nem_rounds = 1',
}


@pytest.mark.parametrize("question", MODELS)
def test_the_review_reports_rows_that_are_left_out(question):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    x[:3, 0] = np.nan
    table = Source(Client("basel", x, rng.integers(0, 2, 120)), COLUMNS)
    approved = masked_study(f"{MODELS[question]}\nrandom_state = 0")
    assert reviewed(approved, table)[question] == 3


def test_the_review_reports_rows_of_a_newton_step():
    rng = np.random.default_rng(0)
    table = Source(Client("basel", rng.normal(size=(120, 3)), rng.integers(0, 2, 120)), COLUMNS)
    approved = masked_study('name = "GLM"\nfamily = "binomial"\nrandom_state = 0')
    assert reviewed(approved, table)["glm.final"] == 120


def test_the_review_reports_the_least_share_of_a_model_with_own_weights():
    rng = np.random.default_rng(0)
    table = Source(Client("basel", rng.normal(size=(120, 3)), rng.integers(0, 2, 120)), COLUMNS)
    approved = masked_study(f"{MODELS['pooling.look']}\nrandom_state = 0")
    assert reviewed(approved, table)["pooling.e_step"] < 120


def test_a_node_does_not_let_out_sums_of_few_rows_under_its_own_weights():
    """Unmasked, Newton sums over one row of a site were that row."""
    (schema,) = [kind for name, kind in tree.hints(PartialSums).items() if name == "weights"]
    up = ComponentSums(
        *(np.full((1, 2), n) for n in (1.2, 1.2)), *[np.zeros((1, 2))] * 2, np.zeros((1, 2)), np.zeros(1)
    )
    with pytest.raises(Refused, match="fewer than 5 rows"):
        Policy(min_rows_per_component=5).check_answer(up, schema, 200, NAMES[0])
