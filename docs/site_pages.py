"""Pages of the site that are made while it is built: the reference, the gallery and the list of decisions.

mkdocs calls `on_config` before it reads the pages, and `on_files` when it knows them (see `hooks` in mkdocs.yml).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import unpooled
from unpooled import baselines
from unpooled.estimator import Estimator
from unpooled.federation import Layer

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
PARTS = {  # heading in the reference -> how the module of a name begins
    "Data and federations": ("unpooled.data", "unpooled.local", "unpooled.estimator"),
    "Layers": ("unpooled.layers",),
    "Models": ("unpooled.models",),
    "Comparing models": ("unpooled.validation",),
    "Baselines": ("unpooled.baselines",),
}
TOPICS = {  # heading in the list of decisions -> how the names of its pages begin
    "Mixtures": ("acceleration", "mixture", "mixed-mixtures"),
    "OpenMixture": ("open-mixture", "less"),
    "Missing values": ("imputer", "skewed", "missing"),
    "Classifiers": ("classifiers", "concepts", "learner", "many-networks"),
    "Regressions": ("fedbnr", "glm", "intervals", "pooling"),
    "Networks and privacy": ("flower", "studies", "one-compression", "live-pages"),
    "Code and documents": ("",),
}
HOOKS = {  # what subclasses and layers implement, and what algorithms call: not for users
    *(name for name in vars(Estimator) if name not in ("fit", "save")),
    *vars(Layer),
    *("ask", "at_round", "changes", "cohort", "covariance_type", "describe", "first", "models", "params", "private"),
    *("report_figures", "result", "set_joint", "set_thresholds", "takes_missing", "trainer", "with_own"),
}


def on_config(config: Any) -> Any:
    """Add the pages that are made here, and pages that the nav does not name, to the nav."""
    sections = {title: pages for entry in config.nav for title, pages in entry.items()}
    for title, names in reference_parts().items():
        sections["Reference"].append({title: [page_of(package, name) for package, name in names]})
    sections["Gallery"] += [f"gallery/{path.stem}.md" for path in scripts()]
    for topic, names in decisions().items():
        sections["Decisions"].append({topic: [f"decisions/{name}" for name in names]})
    sections["Models"] += [f"models/{name}" for name in pages_in("models") if f"models/{name}" not in str(config.nav)]
    sections["How to"] += [f"how-to/{name}" for name in pages_in("how-to") if f"how-to/{name}" not in str(config.nav)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Write the pages that are made here."""
    for path, text in {**reference(), **gallery(), "decisions/index.md": decision_list()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def pages_in(folder: str) -> list[str]:
    return sorted(path.name for path in (DOCS / folder).glob("*.md"))


# ---- reference ----


def reference() -> dict[str, str]:
    """path -> text of the pages of public names, and of the page that lists them."""
    lines = ["# Reference", "", "Written from the docstrings in the source, whose examples are run by the tests.", ""]
    pages = {}
    for title, names in reference_parts().items():
        lines += [f"## {title}", "", "| name | what it is |", "|---|---|"]
        for package, name in names:
            thing = getattr(package, name)
            path = page_of(package, name)
            lines.append(f"| [`{name}`]({Path(path).name}) | {cell(summary(thing))} |")
            pages[path] = directive(thing)
        lines.append("")
    return {"reference/index.md": "\n".join(lines), **pages}


def reference_parts() -> dict[str, list[tuple[Any, str]]]:
    """heading -> (package, name) of the public names under it."""
    public = [(unpooled, name) for name in unpooled.__all__ if not name.startswith("_")]
    public += [(baselines, name) for name in baselines.__all__]
    parts: dict[str, list[tuple[Any, str]]] = {title: [] for title in PARTS}
    for package, name in public:
        module = getattr(package, name).__module__
        title = next((t for t, begins in PARTS.items() if module.startswith(begins)), "Models")
        parts[title].append((package, name))
    return parts


def page_of(package: Any, name: str) -> str:
    """The path of a name's page; two public classes are called FedEM."""
    prefix = "baselines." if package is baselines else ""
    return f"reference/{prefix}{name}.md"


def directive(thing: Any) -> str:
    """What mkdocstrings turns into the page of a public name, with the methods that users call."""
    lines = [f"::: {thing.__module__}.{thing.__name__}"]
    if isinstance(thing, type):
        lines += ["    options:", f"      members: {methods(thing)}"]
    return "\n".join(lines) + "\n"


def methods(thing: type) -> list[str]:
    """The methods that users call."""
    bases = [base for base in thing.__mro__ if base.__module__.startswith("unpooled")]
    found = {name: member for base in reversed(bases) for name, member in vars(base).items()}
    return sorted(name for name, member in found.items() if is_for_users(name, member))


def is_for_users(name: str, member: Any) -> bool:
    return not name.startswith("_") and name not in HOOKS and inspect.isfunction(member) and bool(member.__doc__)


def summary(thing: Any) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split())


def cell(text: str) -> str:
    return text.replace("|", "\\|")


# ---- gallery ----


def gallery() -> dict[str, str]:
    """path -> text of the pages of examples, and of the page that shows all pictures."""
    lines = ["# Gallery", "", "Each script runs in under a minute on data that needs no download.", ""]
    pages = {}
    for path in scripts():
        title, text = title_and_text(path)
        lines += [
            f"## [{title}]({path.stem}.md)",
            "",
            f"[![{title}](../pictures/gallery/{path.stem}.png)]({path.stem}.md)",
            "",
        ]
        pages[f"gallery/{path.stem}.md"] = example_page(path, title, text)
    return {"gallery/index.md": "\n".join(lines), **pages}


def scripts() -> Iterator[Path]:
    return (path for path in sorted(EXAMPLES.glob("*.py")) if not path.stem.startswith("_"))


def title_and_text(path: Path) -> tuple[str, str]:
    """The first line of a script's docstring, and the rest of it."""
    doc = ast.get_docstring(ast.parse(path.read_text())) or path.stem
    title, _, text = doc.partition("\n")
    return title.rstrip("."), text.strip()


def example_page(path: Path, title: str, text: str) -> str:
    code = re.sub(r'^""".*?"""\n+', "", path.read_text(), count=1, flags=re.S)
    picture = f"![{title}](../pictures/gallery/{path.stem}.png)"
    command = f"Run it with `python examples/{path.name}`."
    return f"# {title}\n\n{text}\n\n{picture}\n\n{command}\n\n```python\n{code}```\n"


# ---- decisions ----


def decisions() -> dict[str, list[str]]:
    """topic -> names of the pages of decisions; a page belongs to the first topic that its name begins like."""
    found: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for name in pages_in("decisions"):
        topic = next(topic for topic, begins in TOPICS.items() if name.startswith(begins))
        found[topic].append(name)
    return found


def decision_list() -> str:
    """The page that lists the decisions, by their titles."""
    lines = ["# Decisions", "", "Choices that had alternatives, and why they were made."]
    for topic, names in decisions().items():
        lines += ["", f"## {topic}", ""]
        for name in names:
            title = (DOCS / "decisions" / name).read_text().partition("\n")[0].removeprefix("# ")
            lines.append(f"- [{title}]({name})")
    return "\n".join(lines) + "\n"
