"""Every Python example in the docs runs as written, and every command is documented."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from unpooled.cli import COMMANDS

DOCS = Path(__file__).parents[1] / "docs"
RUN = [
    "tutorial.md",
    "writing-a-model.md",
    "explanation/open-mixture.md",
    "explanation/differential-privacy.md",
]  # pages whose blocks, put together, are one program


@pytest.mark.parametrize("page", RUN)
def test_examples_run(page, tmp_path):
    program = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S))
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_command_is_documented():
    text = "".join(p.read_text() for p in DOCS.glob("*.md"))
    for command in COMMANDS:
        assert f"unpooled {command}" in text, command


def test_links_in_the_docs_lead_somewhere():
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
