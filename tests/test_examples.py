"""Every example in a docstring runs and prints what it says."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

import unpooled

ROOT = Path(unpooled.__file__).parent


def modules_with_examples():
    for path in sorted(ROOT.rglob("*.py")):
        if re.search(r"^\s*>>> (?!.*doctest: \+SKIP)", path.read_text(), re.M):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(["unpooled", *(p for p in parts if p != "__init__")])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_examples_of_a_module_run(name):
    found = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted
    assert not found.failed
