"""Write docs/reference.md from the public names: signature and docstring of each; `ruff format docs` then sets its lines."""

import inspect
from pathlib import Path

import unpooled
from unpooled import baselines

OUT = Path(__file__).parent / "reference.md"


def entry(name: str, thing: object, prefix: str) -> str:
    doc = inspect.cleandoc(thing.__doc__ or "")
    if not callable(thing):
        return f"### `{prefix}{name}`\n"
    return f"### `{prefix}{name}`\n\n```python\n{name}{signature(thing)}\n```\n\n{doc}\n\n{methods(thing)}"


def signature(thing: object) -> str:
    """One parameter a line, without annotations: what can be given, and what it is otherwise."""
    parameters = [p for p in inspect.signature(thing).parameters.values() if p.name != "self"]  # type: ignore[arg-type]
    shown = [str(p.replace(annotation=p.empty)) for p in parameters]
    return f"({', '.join(shown)})"


def methods(thing: object) -> str:
    """The public methods that the class or our own bases define, with their first lines."""
    if not isinstance(thing, type):
        return ""
    own = {n: m for c in reversed(thing.__mro__) if c.__module__.startswith("unpooled") for n, m in vars(c).items()}
    lines = [
        f"- `{n}`: {first_line(m)}"
        for n, m in sorted(own.items())
        if not n.startswith("_") and first_line(m) and n not in ("init", "step", "done", "finish", "check", "rounds")
    ]
    return "\n".join(lines) + "\n" if lines else ""


def first_line(member: object) -> str:
    text = getattr(member.fget if isinstance(member, property) else member, "__doc__", None)
    return (
        inspect.cleandoc(text).splitlines()[0]
        if text and (inspect.isfunction(member) or isinstance(member, property))
        else ""
    )


def page() -> str:
    parts = ["# Reference", "", "Written by `python docs/make_reference.py` from the source.", "", "## unpooled", ""]
    parts += [entry(n, getattr(unpooled, n), "unpooled.") for n in unpooled.__all__ if not n.startswith("_")]
    parts += ["## unpooled.baselines", ""]
    parts += [entry(n, getattr(baselines, n), "unpooled.baselines.") for n in baselines.__all__]
    return "\n".join(parts)


if __name__ == "__main__":
    OUT.write_text(page())
