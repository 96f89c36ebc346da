"""What a node lets out, by its own file: the coordinator cannot see it, change it or ask around it; a refusal tells it why.

`policy.toml` is read before every answer, so that a change holds from the next question on.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.client import GATHER, Ask
from unpooled.errors import BadParameter, DataNotFound, suggest
from unpooled.names import room_of
from unpooled.node.questions import Refused

if TYPE_CHECKING:
    from unpooled.node.ledger import Ledger

TEMPLATE = """\
# What this node lets out. Read before every answer; the coordinator cannot override it.
questions = ["*"]              # names of questions that are answered; * stands for anything
models = ["*"]                 # and the models they belong to, the part before the dot: "mixture", "initialization"
gather = false                 # whether single answers may be asked for, besides sums; or which: ["*.local_centres"]
columns = ["*"]                # columns that may be used
min_rows = 10                  # with fewer rows nothing is answered
min_rows_per_component = 0     # a count in an answer that is above 0 and below this is not let out
rounds_per_day = 10000         # questions answered in 24 hours, at most
max_bytes = 1073741824         # a larger message is not read
dry_run = false                # true: answer nothing, write into the ledger what would have left
"""


@dataclass(frozen=True)
class Policy:
    """The rules; the defaults are those of a node without a policy file, in a simulation for instance."""

    questions: Sequence[str] = ("*",)
    models: Sequence[str] = ("*",)
    gather: bool | Sequence[str] = True  # or the questions that may be asked so
    columns: Sequence[str] = ("*",)
    min_rows: int = 0
    min_rows_per_component: float = 0
    rounds_per_day: int = 10**9
    max_bytes: int = 2**31
    dry_run: bool = False

    def admit(self, ask: Ask, rows: int, ledger: Ledger | None, node: str) -> None:
        """Refuse a question that may not be answered at all."""
        where = f"the policy of {node!r}"
        for name in (ask.name, *(s.name for s in ask.steps)):
            model = room_of(name)
            allowed = _matches(name, self.questions) and (_matches(model, self.models) or name != ask.name)
            if not allowed:
                raise Refused(f"{where} does not allow the question {name}: ask its owner")
        if ask.kind == GATHER and not (self.gather is True or _matches(ask.name, self.gather or ())):
            raise Refused(
                f"{where} does not allow GATHER, which {ask.name} is: ask its owner for gather = [{ask.name!r}]"
            )
        if rows < self.min_rows:
            raise Refused(f"{node!r} has fewer rows than the {self.min_rows} that its policy demands")
        if ledger is not None and ledger.today() >= self.rounds_per_day:
            raise Refused(f"{where} allows {self.rounds_per_day} answers in 24 hours, and they are spent")

    def usable(self, columns: Sequence[str]) -> list[str]:
        """The columns that may be used, in their order."""
        return [c for c in columns if _matches(c, self.columns)]

    def check_columns(self, asked: Sequence[str] | None, held: Sequence[str] | None, node: str) -> None:
        usable = None if held is None else self.usable(held)
        if asked is None:
            if usable is not None and len(usable) < len(held or ()):
                raise Refused(f"the policy of {node!r} allows some columns only: name those that you want")
            return
        if len(set(asked)) < len(asked):
            raise Refused("a column was asked for twice: name each once")
        for column in asked:
            if usable is None or column not in usable:
                raise Refused(
                    f"{node!r} has no column {column[:60]!r} that may be used: {suggest(column, usable or ())}"
                )

    def check_counts(self, up: Any, schema: Any, node: str) -> None:
        """Refuse an answer in which few rows stand for a component: counts are what the schema bounds by >=0."""
        if self.min_rows_per_component <= 0:
            return
        for path, count in _counts(up, schema):
            if bool(((count > 1e-9) & (count < self.min_rows_per_component)).any()):
                least = self.min_rows_per_component
                raise Refused(f"{path} at {node!r} counts fewer than {least} rows somewhere, which its policy forbids")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, p) for p in patterns)


def _counts(up: Any, schema: Any) -> list[tuple[str, np.ndarray]]:
    """(path, values) of the leaves that the schema bounds by >=0."""
    if not hasattr(schema, "_fields"):
        spec = getattr(schema, "__metadata__", [None])[0]
        return [("the answer", to_numpy(up))] if getattr(spec, "bound", "") == ">=0" else []
    hints = tree.hints(schema)
    found = []
    for name, part in zip(schema._fields, up):
        found += [(name if at == "the answer" else f"{name}.{at}", v) for at, v in _counts(part, hints[name])]
    return found


def read(path: Path) -> Policy:
    """The policy in a file; a key that is not known is refused, so that a slip of the pen does not open a door."""
    try:
        body = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: `unpooled node init` writes one to start from") from error
    except tomllib.TOMLDecodeError as error:
        raise BadParameter(f"{path} is not TOML: {error}") from error
    known = {f.name: f.default for f in fields(Policy)}
    strict = defaults()
    for key, value in body.items():
        if key not in known:
            raise BadParameter(f"{path.name} has a key {key!r} that is not known: {suggest(key, known)}")
        if not (_fits(value, known[key]) or (key == "gather" and _fits(value, ()))):
            raise BadParameter(f"{path.name}: {key} = {value!r} should be like {json.dumps(strict[key])}")
    return Policy(**{**strict, **body})


def defaults() -> dict[str, Any]:
    """The rules of a policy file that says nothing: stricter than those of a simulation."""
    return tomllib.loads(TEMPLATE)


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
