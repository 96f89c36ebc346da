"""Imports follow the layers of the package, and `import unpooled` is fast."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "unpooled"

# From the ground up: a file may import from the rows above its own, and from its own package.
FLOORS = [
    {"arrays", "errors", "names", "toml_text"},
    {"tree", "parameters", "progress"},
    {"choices", "export"},
    {"maths", "wire", "store", "metrics", "client", "secure", "privacy"},
    {"federation"},
    {"jobs"},
    {"local"},
    {"data", "saving"},
    {"estimator", "datasets"},
    {"layers", "learners"},
    {"config"},
    {"study", "report"},
    {"checking"},
    {"models"},
    {"validation"},
    {"baselines"},
    {"node"},
    {"certificate", "remote"},
    {"summary"},
    {"runs"},
    {"flower", "pages"},
    {"commands"},
    {"cli"},
    {"__main__"},
]


def imported(path: Path) -> set[str]:
    """The first name below `unpooled` of every import in a file, those inside functions included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "unpooled":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("floor", range(len(FLOORS)))
def test_imports_go_one_way(floor):
    below = set().union(*FLOORS[:floor])
    for package in FLOORS[floor]:
        files = [*(SRC / package).rglob("*.py"), *SRC.glob(f"{package}.py")]
        for path in files:
            assert imported(path) <= below | {package, "__version__"}, path.relative_to(SRC)


def test_every_package_stands_on_a_floor():
    packages = {p.stem for p in SRC.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert packages - {"__init__"} <= set().union(*FLOORS)


ROOMS = sorted(p.parent.name for p in (SRC / "models").glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_packages_are_imported_through_their_init_only(room):
    inside = SRC / "models" / room
    pattern = re.compile(rf"from unpooled\.models\.{room}\.\w|import unpooled\.models\.{room}\.\w")
    users = [p for p in SRC.rglob("*.py") if inside not in p.parents and pattern.search(p.read_text())]
    assert users == []


def test_flwr_is_imported_by_its_adapter_only():
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


def test_baselines_are_an_attribute_of_the_package():
    done = subprocess.run([sys.executable, "-c", "import unpooled; unpooled.baselines.FedAvg"], capture_output=True)
    assert done.returncode == 0, done.stderr


FIT = "import numpy as np; model(3, max_iter=1, tol=0).fit({c: np.random.default_rng(i).normal(size=(40, 2)) for i, c in enumerate('ab')})"


def modules_after(*statements: str) -> list[str]:
    """Modules of this project that these statements load, in a process of their own."""
    shown = "print(*sorted(m for m in sys.modules if m.split('.')[0] == 'unpooled'))"
    code = "\n".join(["import sys", *statements, shown])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_mixture_needs_few_modules():
    found = modules_after("from unpooled import GaussianMixture")
    assert len(found) <= 20, found


def test_a_default_fit_of_the_mixture_needs_few_modules():
    found = modules_after("from unpooled import GaussianMixture as model", FIT)
    assert len(found) <= 40, found
    unused = {
        "layers",
        "privacy",
        "secure",
        "remote",
        "node",
        "config",
        "study",
        "report",
        "runs",
        "commands",
        "learners",
    }
    assert not unused & {m.split(".")[1] for m in found if "." in m}


def test_other_solvers_are_loaded_when_they_are_chosen():
    found = modules_after(
        "from unpooled import GaussianMixture as model", FIT.replace("max_iter=1", "solver='fedem', max_iter=1")
    )
    assert "unpooled.models.fedem.estimator" in found
