"""Imports go one way, and `import unpooled` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "unpooled"

# A package may import from these alone; arrays and tree stand below everything.
BELOW = {
    "maths": {"arrays", "tree", "errors", "maths"},
    "layers": {"arrays", "tree", "errors", "maths", "client", "federation", "layers"},
    "secure": {"arrays", "tree", "errors", "secure"},
    "data": {"arrays", "tree", "errors", "client", "data"},
    "models": {
        "arrays",
        "tree",
        "errors",
        "maths",
        "client",
        "federation",
        "local",
        "estimator",
        "models",
        "learners",
        "data",
        "metrics",
        "report",
        "layers",
    },
}
CORE = {"client", "federation", "local", "estimator", "store"}
ABOVE_CORE = {"models", "baselines", "layers", "cli", "commands", "report", "flower", "runs", "config", "node"}


def imported(path: Path) -> set[str]:
    """The first name below `unpooled` of every import in a file, those inside functions included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "unpooled":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("package", BELOW)
def test_imports_go_one_way(package):
    for path in (SRC / package).rglob("*.py"):
        assert imported(path) <= BELOW[package], path.name


@pytest.mark.parametrize("module", sorted(CORE))
def test_the_core_knows_no_model(module):
    assert not imported(SRC / f"{module}.py") & ABOVE_CORE


def test_flwr_is_imported_by_its_adapter_alone():
    users = [p for p in SRC.rglob("*.py") if "flwr" in p.read_text() and _imports(p, "flwr")]
    assert all("flower" in p.relative_to(SRC).parts[0] for p in users), users


def _imports(path: Path, module: str) -> bool:
    names = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import | ast.ImportFrom))
    return any((getattr(n, "module", None) or n.names[0].name).split(".")[0] == module for n in names)


HEAVY = {"torch", "flwr", "pandas", "polars", "matplotlib", "pyarrow", "sqlalchemy"}


def loaded(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*{HEAVY} & set(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("what", ["import unpooled", "import unpooled.cli"])
def test_importing_is_light(what):
    assert loaded(what) == set()


def test_using_the_mixture_loads_no_more_than_scikit_learn_does():
    theirs = loaded("import sklearn.base, sklearn.utils.validation")  # it imports pandas where that is installed
    assert loaded("import unpooled; unpooled.GaussianMixture; unpooled.federate") <= theirs
