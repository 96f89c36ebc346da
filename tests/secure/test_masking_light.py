"""The room as it stands: light to import, its examples run, its messages keep their names."""

import doctest
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from unpooled import secure
from unpooled.tree import MESSAGES

MODULES = sorted(p.stem for p in Path(secure.__file__).parent.glob("*.py") if p.stem != "__init__")


def test_importing_the_room_does_not_import_cryptography():
    code = "import sys, unpooled.secure, unpooled.secure.messages; print('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module):
    assert doctest.testmod(import_module(f"unpooled.secure.{module}")).failed == 0


def test_public_names_are_there():
    for name in secure.__all__:
        assert getattr(secure, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = secure.Nothing


def test_messages_keep_their_names():
    names = {"Keys", "Envelopes", "Begun", "MaskRequest", "Masked", "RevealRequest", "Shares", "Total"}
    assert {f"secure.{n}" for n in names} <= set(MESSAGES)
