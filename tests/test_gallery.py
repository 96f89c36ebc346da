"""Every example of the gallery runs and draws its picture; the notebooks are made of the same code."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))
ALONE = ("network",)  # starts processes that end with its own
NOTEBOOKS = EXAMPLES / "notebooks"


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_draws_its_picture(name, tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    if name in ALONE:
        pytest.importorskip("flwr")
        command = [sys.executable, EXAMPLES / f"{name}.py"]
        done = subprocess.run(command, capture_output=True, text=True, env={**environment(), "MPLBACKEND": "Agg"})
        assert done.returncode == 0, done.stderr
    else:
        plt.switch_backend("Agg")
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        plt.close("all")
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert (ROOT / "docs" / "pictures" / "gallery" / f"{name}.png").exists(), "run `make pictures`"


def environment():
    import os

    return {**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}


def make():
    """What examples/notebooks/make.py defines."""
    pytest.importorskip("nbclient")
    return runpy.run_path(str(NOTEBOOKS / "make.py"))


def test_notebooks_are_made_from_the_scripts():
    import nbformat

    made = make()
    assert sorted(made["NAMES"]) == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    for name in made["NAMES"]:
        stored = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        fresh = made["notebook"](EXAMPLES / f"{name}.py")
        assert [cell.source for cell in stored.cells] == [cell.source for cell in fresh.cells], "run `make pictures`"
        assert any("image/png" in output.get("data", {}) for cell in stored.cells for output in cell.get("outputs", []))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_notebook_runs(tmp_path):
    made = make()
    done = made["run"](made["notebook"](EXAMPLES / "forgetting.py"), tmp_path)
    assert (tmp_path / "forgetting.png").exists()
    assert "differ by" in done.cells[4].outputs[0].text
