"""Every Python example in the docs runs as written, every command and every public name is documented."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unpooled
import unpooled.baselines
from unpooled.cli import COMMANDS, parser

DOCS = Path(__file__).parents[1] / "docs"
PICTURE = re.compile(r'savefig\("(.*?)"')
MADE = ("reference/", "gallery/", "decisions/index.md")  # pages that the site makes: mkdocs checks these links
NEEDS_NODES = "tutorial-network.md"  # followed by benchmarks/tutorial_network.py


def blocks(page):
    """The Python blocks of a page as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))


PAGES = {str(page.relative_to(DOCS)): blocks(page) for page in sorted(DOCS.rglob("*.md")) if page.name != NEEDS_NODES}
PROGRAMS = {name: program for name, program in PAGES.items() if program}


@pytest.mark.slow
@pytest.mark.parametrize("page", PROGRAMS)
def test_examples_run(page, tmp_path, monkeypatch):
    program = PROGRAMS[page]
    if "@client(" in program:  # what it registers must not stay in this process
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return
    monkeypatch.chdir(tmp_path)
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    exec(compile(program, page, "exec"), {"__name__": "__main__"})
    plt.close("all")
    for picture in PICTURE.findall(program):
        assert (tmp_path / picture).stat().st_size > 1000
        assert (DOCS / "pictures" / picture).exists(), f"run `make pictures` for {page}"


@pytest.mark.parametrize("package", [unpooled, unpooled.baselines], ids=lambda package: package.__name__)
def test_every_public_name_has_a_page_and_an_example(package):
    headings = re.findall(r"^# (.*)", "\n".join(page.read_text() for page in (DOCS / "models").glob("*.md")), re.M)
    table = (DOCS / "models" / "baselines.md").read_text()
    for name in package.__all__:
        thing = getattr(package, name)
        if name.startswith("_"):
            continue
        has_page = (
            f"| `{name}` |" in table if package is unpooled.baselines else re.search(rf"\b{name}\b", str(headings))
        )
        assert has_page, f"{name} has no page in docs/models"
        assert ">>>" in thing.__doc__, f"{name} has no example"  # run by tests/test_examples.py


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
            if not any(made in link for made in MADE):
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_benchmarks_named_in_what_was_measured_exist():
    folder = DOCS / "measured"
    named = set(re.findall(r"benchmarks/(\w+)\.py", "\n".join(page.read_text() for page in folder.glob("*.md"))))
    printed = set(re.findall(r"^## (\w+)$", (folder / "benchmarks.md").read_text(), re.M))
    there = {path.stem for path in (DOCS.parent / "benchmarks").glob("*.py")}
    assert len(named) > 20
    assert (named | printed) - there == {"NAME"}


@pytest.mark.parametrize("name", ["reading-the-code", "glossary"])
def test_files_named_in_the_guide_to_the_code_exist(name):
    source = Path(unpooled.__file__).parent
    page = (DOCS / "explanation" / f"{name}.md").read_text()
    named = re.findall(r"`([\w/]+\.py)`", page)
    assert len(set(named)) > 10
    assert [path for path in named if not (source / path).exists()] == []
