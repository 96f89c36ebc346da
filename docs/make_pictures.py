"""Draw all pictures of the documents again: `make pictures`.

Pages draw their own pictures: the Python blocks of a page, put together, are one program, whose pictures go to
docs/pictures. Those of gallery scripts go to docs/pictures/gallery, and the notebooks are made from three scripts.

    python docs/make_pictures.py [NAME ...]      # only these pages or scripts, by the stem of their file
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
PICTURES = DOCS / "pictures"


def blocks(page: Path) -> str:
    """The Python blocks of a page as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))


def jobs() -> Iterator[tuple[str, str, Path]]:
    """(name, program, folder) of everything that draws."""
    for page in sorted(DOCS.rglob("*.md")):
        if ".savefig(" in blocks(page):
            yield page.stem, blocks(page), PICTURES
    for script in sorted(EXAMPLES.glob("*.py")):
        yield script.stem, script.read_text(), PICTURES / "gallery"


def draw(program: str, folder: Path) -> None:
    """Run a program in a folder of its own, and keep the pictures that it draws."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [sys.executable, "-c", program], cwd=scratch, env={**os.environ, "MPLBACKEND": "Agg"}, check=True
        )
        for picture in Path(scratch).glob("*.png"):
            shutil.copy(picture, folder)


def main(names: list[str]) -> None:
    for name, program, folder in jobs():
        if not names or name in names:
            print(name, flush=True)
            draw(program, folder)
    if not names:
        subprocess.run([sys.executable, EXAMPLES / "notebooks" / "make.py"], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
