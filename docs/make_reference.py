"""Write docs/reference.md from the docstrings of the public names: `make docs`.

Each name has its signature, its numpydoc sections as tables, its example and the methods that users call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import unpooled
from unpooled import baselines
from unpooled.estimator import Estimator
from unpooled.federation import Layer

OUT = Path(__file__).parent / "reference.md"
WIDTH = 100
TABLES = {"Parameters": "parameter", "Attributes": "attribute"}
LISTS = ("Returns", "Yields", "Raises")
HOOKS = {  # what subclasses and layers implement, and what algorithms call: not for users
    *(name for name in vars(Estimator) if name not in ("fit", "save")),
    *vars(Layer),
    *("ask", "at_round", "changes", "cohort", "covariance_type", "describe", "first", "models", "params", "private"),
    *("report_figures", "result", "set_joint", "set_thresholds", "takes_missing", "trainer", "with_own"),
}
PARTS = {  # heading -> how the module of a name begins
    "Data and federations": ("unpooled.data", "unpooled.local", "unpooled.estimator"),
    "Layers": ("unpooled.layers",),
    "Models": ("unpooled.models",),
}


def page() -> str:
    lines = ["# Reference", "", "Written by `make docs` from the docstrings in the source.", ""]
    names = [name for name in unpooled.__all__ if not name.startswith("_")]
    for title, modules in PARTS.items():
        chosen = [name for name in names if getattr(unpooled, name).__module__.startswith(modules)]
        lines += [f"## {title}", "", *(line for name in chosen for line in entry(unpooled, name))]
        names = [name for name in names if name not in chosen]
    lines += [line for name in names for line in entry(unpooled, name)]
    lines += ["## Baselines", "", "The methods that the papers compare with.", ""]
    lines += [line for name in baselines.__all__ for line in entry(baselines, name)]
    return "\n".join(lines).rstrip() + "\n"


def entry(package: Any, name: str) -> list[str]:
    """The lines about one public name."""
    thing = getattr(package, name)
    head = [f"### `{package.__name__}.{name}`", "", "```python", signature(name, thing), "```", ""]
    return [*head, *body(inspect.cleandoc(thing.__doc__ or "")), *methods(thing)]


def signature(name: str, thing: Any) -> str:
    """The call without annotations, on one line if it fits, else one parameter per line."""
    parameters = inspect.signature(thing).parameters.values()
    shown = [str(p.replace(annotation=p.empty)) for p in parameters if p.name != "self"]
    keyword_only = [i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY]
    has_star = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if keyword_only and not has_star:
        shown.insert(keyword_only[0], "*")
    line = f"{name}({', '.join(shown)})"
    return line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {text}," for text in shown), ")"])


# ---- numpydoc as Markdown ----


def body(doc: str) -> list[str]:
    """A docstring with its sections as tables, lists and code."""
    out: list[str] = []
    for title, lines in sections(doc):
        if title in TABLES:
            out += [f"**{title}**", "", *table(TABLES[title], lines), ""]
        elif title in LISTS:
            out += [f"**{title}**", "", *(f"- `{name}`: {text}" for name, _, text in entries(lines)), ""]
        elif title == "Examples":
            out += [f"**{title}**", "", *examples(lines), ""]
        elif title:
            out += [f"**{title}**", "", *lines, ""]
        else:
            out += [*lines, ""]
    return out


def sections(doc: str) -> Iterator[tuple[str, list[str]]]:
    """(title, lines) of each section; the text before the first has no title."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", doc, flags=re.M)
    yield "", parts[0].strip().splitlines()
    for title, text in zip(parts[1::2], parts[2::2]):
        yield title, text.strip("\n").rstrip().splitlines()


def table(first: str, lines: list[str]) -> list[str]:
    """Entries `name : type` with indented text below, as the rows of a table; other text as it is."""
    if not any(line.startswith("    ") for line in lines):
        return lines
    out = [f"| {first} | type | meaning |", "|---|---|---|"]
    for name, kind, text in entries(lines):
        out.append(f"| {code(name)} | {cell(kind)} | {cell(text)} |")
    return out


def entries(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """(name, type, meaning) of each entry."""
    groups: list[tuple[str, list[str]]] = []
    for line in lines:
        if line and not line.startswith(" "):
            groups.append((line, []))
        elif line.strip() and groups:
            groups[-1][1].append(line.strip())
    for head, text in groups:
        name, _, kind = head.partition(" : ")
        yield name.strip(), kind.strip(), " ".join(text)


def code(names: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def examples(lines: list[str]) -> list[str]:
    """Code and its output in one fence, text between as text."""
    out: list[str] = []
    inside = False
    for line in [*lines, ""]:
        is_code = line.startswith((">>>", "...")) or (inside and line != "")
        if is_code != inside:
            out += ["```pycon"] if is_code else ["```"]
        inside = is_code
        out.append(line)
    return "\n".join(out).rstrip().splitlines()


# ---- methods ----


def methods(thing: Any) -> list[str]:
    """The methods that users call, with the first sentence of each."""
    if not isinstance(thing, type):
        return []
    found = {
        name: member
        for base in reversed(thing.__mro__)
        if base.__module__.startswith("unpooled")
        for name, member in vars(base).items()
    }
    rows = [f"| `{name}` | {cell(summary(found[name]))} |" for name in sorted(found) if is_for_users(name, found[name])]
    return ["| method | what it does |", "|---|---|", *rows, ""] if rows else []


def is_for_users(name: str, member: Any) -> bool:
    return not name.startswith("_") and name not in HOOKS and inspect.isfunction(member) and bool(member.__doc__)


def summary(member: Any) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join(inspect.cleandoc(member.__doc__).split("\n\n")[0].split())


if __name__ == "__main__":
    OUT.write_text(page())
