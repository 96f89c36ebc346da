"""The examples in the docstrings of public names run as written."""

import doctest
import importlib

import pytest

import unpooled
from unpooled import baselines

PUBLIC = {
    f"{package.__name__}.{name}": (package, name) for package in (unpooled, baselines) for name in package.__all__
}
PARTS = ("unpooled.data.builtin", "unpooled.data.partition", "unpooled.data.synthetic", "unpooled.data.tables")
WARNS = pytest.mark.xfail(strict=True, reason="KaplanMeier divides 0 by 0 where nobody is at risk any more")


def cases():
    for name in PUBLIC:
        if not name.endswith("__version__"):
            yield pytest.param(name, marks=WARNS) if name.endswith("KaplanMeier") else name


def run_examples(tests, capsys):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in tests:
        result = runner.run(test)
        assert result.failed == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", list(cases()))
def test_examples_of_public_names_run(name, capsys):
    package, short = PUBLIC[name]
    thing = getattr(package, short)
    run_examples(doctest.DocTestFinder(recurse=False).find(thing, short, globs={}), capsys)


@pytest.mark.parametrize("name", PARTS)
def test_examples_of_modules_run(name, capsys):
    module = importlib.import_module(name)
    run_examples(doctest.DocTestFinder().find(module), capsys)
