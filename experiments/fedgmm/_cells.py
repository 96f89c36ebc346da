"""Cached measurements: one line of JSON each in measured.jsonl, never made twice; processes may work on one experiment in parallel.

    python experiments/fedgmm/_cells.py table2 method=FedEM seed=0,1
    python experiments/fedgmm/_cells.py table2 so-far
    python experiments/fedgmm/_cells.py table2_cifar10 book=complete method=pFedMe seed=0,1
    python experiments/fedgmm/_cells.py table2_cifar10 book=complete so-far

An experiment has `cells(small, seeds)`: pairs of a key and a function that measures it. The first line measures, in full size, the
cells whose key matches; `unpooled reproduce` measures those that are missing and makes the table. The second line writes so-far.md,
the means over the seeds that were run, or what the experiment's `lines(book)` says of them. `book=NAME` reads and writes NAME.jsonl in
place of measured.jsonl, and NAME.md in place of so-far.md: measurements of the same cells on other data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from unpooled.commands.reproduce import markdown

RESULTS = Path(__file__).parent / "results"
Key = dict[str, Any]
Measure = Callable[["Book"], dict[str, Any]]  # it may look up other cells


class Book:
    """The measurements of a folder, to which new ones are appended; those of the folders `beside` it are read as well."""

    def __init__(self, folder: Path, say: Callable[[str], None], beside: Sequence[Path] = (), name: str = "measured"):
        self.file, self.say = folder / f"{name}.jsonl", say
        files = [self.file, *(place / "measured.jsonl" for place in beside)]
        rows = (json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines())
        self.known: dict[str, dict] = {_name(row["cell"]): row["found"] for row in rows}

    def get(self, key: Key, measure: Measure) -> dict[str, Any]:
        if _name(key) not in self.known:
            found = self.known[_name(key)] = measure(self)
            self.say(f"{', '.join(map(str, key.values()))}: {_short(found)}")
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as out:
                out.write(json.dumps({"cell": key, "found": found}) + "\n")
        return self.known[_name(key)]

    def so_far(self) -> list[tuple[Key, dict[str, Any]]]:
        """What has been measured, without measuring more."""
        return [(json.loads(name), found) for name, found in self.known.items()]

    def all(self, cells: Iterable[tuple[Key, Measure]]) -> list[tuple[Key, dict[str, Any]]]:
        return [(key, self.get(key, measure)) for key, measure in cells]


def _name(key: Key) -> str:
    return json.dumps(key, sort_keys=True)


def _short(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in found.items() if isinstance(value, float))


def grouped(found: Iterable[tuple[Key, dict]], *names: str) -> dict[tuple, list[dict]]:
    """The results grouped by these entries of the key, all seeds together; cells without a seed are left out."""
    out: dict[tuple, list[dict]] = {}
    for key, value in found:
        if "seed" in key:
            out.setdefault(tuple(key[name] for name in names), []).append(value)
    return out


def so_far(book: Book) -> str:
    """A table of all cells with a seed that were measured; the experiment may want more."""
    groups: dict[str, list[dict]] = {}
    for name, found in book.known.items():
        key = json.loads(name)
        if key.pop("seed", None) is not None:
            groups.setdefault(json.dumps(key), []).append(found)
    return markdown(
        [json.loads(name) | {"seeds": len(found)} | _means(found) for name, found in sorted(groups.items())]
    )


def _means(found: list[dict]) -> dict[str, float]:
    return {name: fmean(f[name] for f in found) for name, value in found[0].items() if isinstance(value, float)}


def main(experiment: str, *wanted: str) -> None:
    matches = {name: values.split(",") for name, _, values in (text.partition("=") for text in wanted)}
    module, so_far_only = import_module(experiment), matches.pop("so-far", None)
    (name,) = matches.pop("book", ["measured"])
    book = Book(RESULTS / experiment, lambda text: print(text, flush=True), getattr(module, "BESIDE", ()), name)
    if so_far_only:
        text = markdown(module.lines(book)) if hasattr(module, "lines") else so_far(book)
        book.file.with_name("so-far.md" if name == "measured" else f"{name}.md").write_text(text + "\n")
        return
    for key, measure in module.cells(False, module.SEEDS):
        if all(str(key.get(name)) in values for name, values in matches.items()):
            book.get(key, measure)


if __name__ == "__main__":
    main(*sys.argv[1:])
