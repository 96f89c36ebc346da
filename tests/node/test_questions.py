"""Every question of the package can be found by its name at a node, and nothing else can."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import unpooled
from unpooled.arrays import Array, Float
from unpooled.client import REGISTRY, SUM, Ask, Client
from unpooled.names import HOMES, room_of
from unpooled.node.questions import Refused, find, options, schema

ROOT = Path(unpooled.__file__).parent


class Down(NamedTuple):
    x: Float[Array, "d"]


class Up(NamedTuple):
    n: Float[Array, ""]


Renamed = NamedTuple("Up", [("m", Float[Array, ""])])  # noqa: UP014  # the same name, another field
Wider = NamedTuple("Up", [("n", Float[Array, "d"])])  # noqa: UP014


def names():
    """The names under which the source registers questions, found by reading it."""
    for path in sorted(ROOT.rglob("*.py")):
        yield from re.findall(r'^(?:\w+ = |@)client\("([\w.]+)", (?:SUM|GATHER|TELL|STEP)', path.read_text(), re.M)


@pytest.mark.parametrize("name", list(names()))
def test_a_question_of_the_package_is_found(name):
    ask = find(name)
    assert isinstance(ask, Ask)
    assert ask.name == name
    assert "client" not in options(ask)
    assert HOMES[room_of(name)].startswith("unpooled.")


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "unpooled.store.write_file",
        "mixture.nothing",
        "unpooled.models.mixture.gaussian_mixture.e_step",
        "",
        None,
        "no_module",
    ],
)
def test_nothing_else_is(name):
    with pytest.raises(Refused, match="only registered questions"):
        find(name)


def test_no_name_is_registered_twice():
    assert len(list(names())) == len(set(names()))


def test_a_schema_is_the_same_in_every_process():
    words = {name: schema(find(name).name) for name in names()}
    name = "mixture.e_step"
    code = f"from unpooled.node.questions import find, schema; print(schema(find({name!r}).name))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == words[name]
    assert len(set(words.values())) > 1


def test_another_field_another_shape_or_another_option_is_another_schema(monkeypatch):
    def made(up, keyword=False):
        def answer(down: Down, client: Client): ...
        def optional(down: Down, client: Client, *, more: int = 1): ...

        fn = optional if keyword else answer
        fn.__annotations__ = {"down": Down, "client": Client, "return": up}
        return fn

    ways = {
        "same": (Up, False),
        "again": (Up, False),
        "field": (Renamed, False),
        "shape": (Wider, False),
        "option": (Up, True),
    }
    words = {}
    for name, (up, keyword) in ways.items():
        monkeypatch.setitem(REGISTRY, f"test.{name}", Ask(f"test.{name}", SUM, made(up, keyword)))
        words[name] = schema(f"test.{name}")
    assert words["same"] == words["again"]
    assert len(set(words.values())) == 4
