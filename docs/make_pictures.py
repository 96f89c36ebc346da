"""Draw all pictures of the documents again: `make pictures`.

Pages draw their own pictures: the Python blocks of a page, put together, are run in docs/pictures. Gallery scripts
are run in docs/pictures/gallery, and the notebooks are made from three of them.

    python docs/make_pictures.py [NAME ...]      # only these pages or scripts, by the stem of their file
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


def main(names: list[str]) -> None:
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    for name, program, folder in jobs():
        if names and name not in names:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        print(name, flush=True)
        subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, check=True)
    if not names:
        subprocess.run([sys.executable, EXAMPLES / "notebooks" / "make.py"], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
