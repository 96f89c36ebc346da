"""The units and the container file in deploy/ start commands that exist."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from unpooled.cli import parser

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
PROGRAM = "/opt/unpooled/bin/unpooled"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_exists(unit):
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
    program, *words = shlex.split(line)
    assert program == PROGRAM
    assert parser().parse_args(words).run


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_a_unit(unit, tmp_path):
    named = tmp_path / unit.name.replace("@.", "@basel.")
    named.write_text(unit.read_text().replace(PROGRAM, shutil.which("true")))
    done = subprocess.run(["systemd-analyze", "verify", str(named)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_file_copies_what_is_there_and_names_known_extras():
    text = (DEPLOY / "Containerfile").read_text()
    for line in re.findall(r"^COPY (.*)$", text, re.M):
        for source in line.split()[:-1]:
            assert (DEPLOY.parent / source).exists()
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    for extra in re.search(r"\.\[(.*?)\]", text).group(1).split(","):
        assert f"\n{extra} = [" in project
