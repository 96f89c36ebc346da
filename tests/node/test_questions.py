"""Every question of the package can be found by its name at a node, and nothing else can."""

import re
from pathlib import Path

import pytest

import unpooled
from unpooled.client import Ask
from unpooled.node.questions import Refused, find, options

ROOT = Path(unpooled.__file__).parent


def names():
    """The names of all functions marked @client in the source, found by reading it."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(["unpooled", *path.relative_to(ROOT).with_suffix("").parts])
        for name in re.findall(r"^@client(?:\(.*?\))?\ndef (\w+)", path.read_text(), re.M):
            yield f"{module}.{name}"


@pytest.mark.parametrize("name", list(names()))
def test_a_question_of_the_package_is_found(name):
    ask = find(name)
    assert isinstance(ask, Ask)
    assert ask.name == name
    assert "client" not in options(ask)


@pytest.mark.parametrize(
    "name", ["os.system", "unpooled.store.write_file", "unpooled.models.start.nothing", "", None, "no_module"]
)
def test_nothing_else_is(name):
    with pytest.raises(Refused, match="only registered questions"):
        find(name)
