"""No row moves a private answer by more than declared, whatever the parameters; refusals do not depend on rows; sums do not round."""

import numpy as np
import pytest
from adversary import attack, nasty_tree
from questions import CASES

from unpooled import tree
from unpooled.client import REGISTRY, Client
from unpooled.privacy.sensitivity import SENSITIVITY


@pytest.mark.parametrize("name", CASES)
def test_no_row_moves_an_answer_by_more_than_one(name):
    question, makers = CASES[name]
    found = attack(question, 400, np.random.default_rng(5), **makers)
    assert found.largest <= 1 + 1e-9
    assert found.largest > 0.5, "the attack must come near to the bound, or it shows nothing"
    assert found.answered > 300
    assert found.told == 0


@pytest.mark.parametrize("name", CASES)
def test_answers_add_over_rows_without_rounding(name):
    question, makers = CASES[name]
    rng = np.random.default_rng(2)
    target = makers.get("target", False)
    sizes = {"d": 3 + target, "f": 3, "k": 3, "m": 4, "r": 3}
    own = {k: v for k, v in makers.items() if k != "target"}
    down = nasty_tree(question.types[0], sizes, own, rng)
    x, y = rng.normal(size=(500, 3)), rng.normal(size=500)
    x[rng.random(x.shape) < 0.1] = np.nan
    rows = lambda some: Client("some", x[some], y[some] if target else None)  # noqa: E731
    whole, most, last = (tree.flatten(question(down, rows(s))) for s in (slice(None), slice(499), slice(499, None)))
    np.testing.assert_allclose(whole - most, last, atol=1e-12)


def test_every_declared_question_is_tried_here():
    tried = {question.name for question, _ in CASES.values()}
    declared = {name for name in SENSITIVITY if name.startswith("private.")}
    assert declared == tried
    assert all(SENSITIVITY[name] == 1.0 and name in REGISTRY for name in declared)
