"""Refusals can be caught together or as the built-in kind they are, and typos get a suggestion."""

import pytest

from unpooled import errors


@pytest.mark.parametrize(
    ("refusal", "builtin"),
    [
        (errors.BadData, ValueError),
        (errors.BadParameter, ValueError),
        (errors.DataNotFound, FileNotFoundError),
        (errors.TooFewClients, RuntimeError),
        (errors.RunError, RuntimeError),
        (errors.MaskingRefused, RuntimeError),
    ],
)
def test_every_refusal_is_ours_and_pythons(refusal, builtin):
    assert issubclass(refusal, errors.UnpooledError)
    assert issubclass(refusal, builtin)
    assert str(refusal("one sentence")) == "one sentence"


def test_suggestions():
    assert errors.suggest("AGE", ["chol", "age"]) == "did you mean 'age'?"
    assert errors.suggest("n_component", ["n_components", "tol"]) == "did you mean 'n_components'?"
    assert errors.suggest("zzz", ["chol", "age"]) == "known: 'chol', 'age'"
    assert errors.suggest("zzz", [f"c{i}" for i in range(12)]).endswith("'c9', ...")
    assert errors.suggest("zzz", []) == "there are none"
