"""Every Python example in the docs runs as written, and every command is documented."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unpooled.baselines
from unpooled.cli import COMMANDS, parser

DOCS = Path(__file__).parents[1] / "docs"
RUN = [
    "tutorial.md",
    "writing-a-model.md",
    "explanation/open-mixture.md",
    "models/glm.md",
    "models/describe.md",
    "models/pca.md",
    "models/survival.md",
    "how-to/classifiers.md",
    "explanation/differential-privacy.md",
]  # pages whose blocks, put together, are one program


@pytest.mark.parametrize("page", RUN)
def test_examples_run(page, tmp_path):
    program = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S))
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_command_is_documented():
    text = (DOCS / "command-line.md").read_text()
    for command in (*COMMANDS, *subcommands()):
        assert f"| `unpooled {command}" in text, command


def subcommands():
    """ "node review", "serve admit" and the like, as argparse knows them."""
    for command, outer in choices(parser()).items():
        yield from (f"{command} {name}" for name in choices(outer))


def choices(of):
    """name -> parser of the commands inside a parser."""
    inner = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    return inner[0].choices if inner else {}


def test_every_model_says_what_leaves_a_client():
    text = (DOCS / "explanation" / "what-leaves.md").read_text()
    for name in (*unpooled.MODELS, *unpooled.baselines.__all__):
        assert f"`{name}`" in text, name


def test_links_in_the_docs_lead_somewhere():
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
