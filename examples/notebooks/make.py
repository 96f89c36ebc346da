"""Make the notebooks from gallery scripts, and run them: a cell begins at each `# %%`.

python examples/notebooks/make.py
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
NAMES = ("clinics", "forgetting", "survival")


def notebook(script: Path) -> Any:
    """A gallery script as a notebook without outputs: its docstring as text, a heading and a cell for each `# %%`."""
    text = script.read_text()
    title, _, about = (ast.get_docstring(ast.parse(text)) or script.stem).partition("\n")
    cells = [nbformat.v4.new_markdown_cell(f"# {title}\n\n{about.strip()}")]
    for part in re.split(r"^# %% ", text, flags=re.M)[1:]:
        heading, _, code = part.partition("\n")
        cells += [nbformat.v4.new_markdown_cell(f"## {heading}"), nbformat.v4.new_code_cell(code.strip())]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same in every run, unlike nbformat's own
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)


def run(made: Any, folder: Path) -> Any:
    """The notebook with the outputs of its cells; files that it writes go to `folder`."""
    NotebookClient(made, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return made


def main() -> None:
    import tempfile

    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            made = run(notebook(HERE.parent / f"{name}.py"), Path(folder))
        for cell in made.cells:
            cell.metadata.pop("execution", None)  # times of the run
        (HERE / f"{name}.ipynb").write_text(nbformat.writes(made) + "\n")
        print(name, file=sys.stderr)


if __name__ == "__main__":
    main()
