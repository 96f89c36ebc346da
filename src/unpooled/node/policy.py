"""What a node lets out: the rules in its owner's policy.toml, which the coordinator can neither see nor change.

The file is read before every answer, so that a change holds from the next question on. A refusal tells the coordinator why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from unpooled import toml_text, tree
from unpooled.arrays import to_numpy
from unpooled.client import GATHER, KEYS, REGISTRY, TELL, Ask
from unpooled.errors import BadParameter, DataNotFound, suggest
from unpooled.names import room_of
from unpooled.node import budget, limits
from unpooled.node.budget import Budget
from unpooled.node.questions import Refused

MASK = "secure.mask"
LARGEST = 2**53  # of a number in a policy: larger ones, and infinity, are typing errors

TEMPLATE = """\
# What this node lets out. Read before every answer; the coordinator cannot override it.
studies = []                   # studies that are answered, by their SHA-256: `unpooled node approve STUDY` adds one
trust_coordinator = false      # true: also answer a coordinator that follows no approved study; every ledger line says so
secure = "allowed"             # masked sums: "off", "allowed" or "required"; a study that masks its sums needs no more
min_cohort = 3                 # the fewest nodes among whom this node's masked answer may be added up
questions = ["*"]              # names of questions that are answered; * stands for anything
models = ["*"]                 # and the models they belong to, the part before the dot: "mixture", "initialization"
gather = false                 # whether single answers may be asked for, besides sums; or which: ["*.local_centres"]
columns = ["*"]                # columns that may be used
check = false                  # true: tell a coordinator who runs `unpooled check` kinds, levels and coarse histograms of columns
min_rows = 10                  # with fewer rows nothing is answered
min_rows_per_component = 5     # a count in an answer above 0 and below this, or this close to all rows, is not let out
max_parameters_per_row = 0.33  # numbers in one answer, for each row of this table, at most
rounds_per_day = 10000         # questions answered in 24 hours, at most
max_bytes = 1073741824         # a larger message is not read
dry_run = false                # true: answer nothing, write into the ledger what would have left

# [privacy]                    # a budget for the life of this table; looks with noise are answered until it is spent
# epsilon = 4.0
# delta = 1e-6                 # far below 1 / rows
# per_question = 1.0           # epsilon of one look, at most
# colluding = 1                # nodes assumed to tell the coordinator their noise
# required = true              # answer nothing but looks with noise
# unit = "patient_id"          # protect all rows of one patient, not single rows; needs max_rows_per_unit
# max_rows_per_unit = 3        # rows of one patient that are used, at most; a look costs the square of it
# [privacy.bounds]             # from knowledge, not from the data; values outside are moved to the nearest bound
# age = [0, 110]

[limits]                       # how closely a request may look, whoever asks
min_count = 5                  # rows in a cluster whose centre leaves, at least
batch = 32                     # rows in one step of training, at least
components = 256               # clusters, centres or models in one question, at most
candidates = 16                # whole models in one question outside a study that is followed, at most
share = 0.5                    # part of the rows that may be held out, at most
steps = 1000                   # epochs or steps of training in one question, at most
"""


@dataclass(frozen=True)
class Policy:
    """The rules; the defaults are those of a node without a policy file, in a simulation for instance."""

    studies: Sequence[str] = ()
    trust_coordinator: bool = True
    secure: str = "allowed"
    min_cohort: int = 3
    max_parameters_per_row: float = float("inf")
    questions: Sequence[str] = ("*",)
    models: Sequence[str] = ("*",)
    gather: bool | Sequence[str] = True  # or the questions that may be asked so
    columns: Sequence[str] = ("*",)
    check: bool = True
    min_rows: int = 0
    min_rows_per_component: float = 0
    rounds_per_day: int = 10**9
    max_bytes: int = 2**31
    dry_run: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)  # none in a simulation
    privacy: Budget | None = None  # the budget of this table, if its owner set one
    network: bool = False  # whether this node is on a network; True for every policy file

    def admit(self, ask: Ask, rows: int, node: str) -> None:
        """Refuse a question that may not be answered at all."""
        names = [ask.name, *(step.name for step in ask.steps)]
        self._check_in_process(names)
        if ask.kind == KEYS:
            if self.secure == "off":
                raise Refused(
                    f'the policy of {node!r} does not allow masked sums: ask its owner for secure = "allowed"'
                )
            return
        self._check_allowed(ask, names, node)
        self._check_masked(ask, MASK in names, node)
        if self.privacy is not None and self.privacy.required and budget.LOOK not in names:
            raise Refused(
                f"the policy of {node!r} answers looks with noise alone, and {ask.name} is none: fit a private model"
            )
        if rows < self.min_rows:
            raise Refused(f"{node!r} has fewer rows than the {self.min_rows} that its policy demands")

    def _check_in_process(self, names: Sequence[str]) -> None:
        """Refuse, on a network, questions and steps that are for simulations alone."""
        for name in names if self.network else ():
            if REGISTRY[name].in_process:
                raise Refused(f"{name} gives rows away or misbehaves by design: no node answers it")

    def _check_allowed(self, ask: Ask, names: Sequence[str], node: str) -> None:
        """Refuse questions, steps, models and GATHERs that the policy does not name."""
        for name in names:
            model_allowed = name != ask.name or _matches(room_of(name), self.models)
            if not (_matches(name, self.questions) and model_allowed):
                raise Refused(f"the policy of {node!r} does not allow the question {name}: ask its owner")
        gather_allowed = self.gather is True or _matches(ask.name, self.gather or ())
        if ask.kind == GATHER and not gather_allowed:
            raise Refused(
                f"the policy of {node!r} does not allow GATHER, which {ask.name} is: ask its owner for gather = [{ask.name!r}]"
            )

    def _check_masked(self, ask: Ask, masked: bool, node: str) -> None:
        """Refuse an unmasked question where masks are required, and a masked one that masks do not hide."""
        if masked and ask.by_site:
            raise Refused(
                f"the total of {ask.name} shows each site's own numbers, whatever masks it: {node!r} does not answer it masked"
            )
        if self.secure == "required" and not (masked or ask.kind == TELL):
            raise Refused(
                f"the policy of {node!r} lets out masked sums alone, and {ask.name} was not asked as one: use a study with secure = true"
            )

    def admit_check(self, node: str) -> None:
        """Refuse to describe the table, unless its owner allows it."""
        private = self.privacy is not None and self.privacy.required
        if not self.check or self.secure == "required" or private or self.dry_run:
            raise Refused(f"the policy of {node!r} does not allow checks of its table: ask its owner for check = true")

    @property
    def floor(self) -> int:
        """The smallest count of rows that may leave."""
        return max(1, int(np.ceil(max(self.min_rows_per_component, self.limits.get("min_count", 0)))))

    def usable(self, columns: Sequence[str]) -> list[str]:
        """The columns that may be used, in their order."""
        return [c for c in columns if _matches(c, self.columns)]

    def check_columns(self, asked: Sequence[str] | None, held: Sequence[str] | None, node: str) -> None:
        """Refuse columns that the policy does not allow, that do not exist, or that are asked for twice."""
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

    def check_answer(self, up: Any, schema: Any, rows: int, node: str) -> None:
        """Refuse an unmasked answer with a count of few rows, or with more numbers than the policy allows for the rows."""
        least = self.min_rows_per_component
        for count in tree.row_counts(up, schema) if least > 0 else ():
            few = (count > 0) & (count < least)
            all_but_few = (count < rows) & (rows - count < least)
            if bool((few | all_but_few).any()):
                raise Refused(FEW_ROWS.format(node=node, least=least))
        numbers = sum(int(np.size(to_numpy(leaf))) for leaf in tree.leaves(up))
        if numbers > self.max_parameters_per_row * rows:
            raise Refused(f"the answer of {node!r} would hold more numbers than its policy allows for its rows")


FEW_ROWS = "an answer of {node!r} would tell of fewer than {least} rows, or of all but so few, which its policy forbids"


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns, in which * stands for any text."""
    return any(fnmatchcase(name, p) for p in patterns)


def read(path: Path) -> Policy:
    """The policy in a file; a key that is not known is refused, so that a typing error does not lift a rule."""
    try:
        body = toml_text.loads(path.read_text())
    except FileNotFoundError as error:
        raise DataNotFound(f"{path} is not there: `unpooled node init` writes one to start from") from error
    except (toml_text.TOMLError, UnicodeDecodeError) as error:
        raise BadParameter(f"{path} is not TOML: {error}") from error
    privacy = budget.read(body.pop("privacy", None), path.name)
    given_limits = _read_limits(body.pop("limits", {}), path)
    strict = defaults()
    for key, value in body.items():
        _check_entry(key, value, strict, path.name)
    return Policy(**{**strict, **body, "limits": given_limits}, privacy=privacy, network=True)


def _check_entry(key: str, value: Any, strict: Mapping[str, Any], file: str) -> None:
    """Refuse an unknown key, and a value of another type than the default."""
    known = {f.name: f.default for f in fields(Policy) if f.name not in ("network", "privacy")}
    if key not in known:
        raise BadParameter(f"{file} has a key {key!r} that is not known: {suggest(key, known)}")
    if key == "secure" and value not in ("off", "allowed", "required"):
        raise BadParameter(f'{file}: secure = {value!r} should be "off", "allowed" or "required"')
    is_list_of_gathers = key == "gather" and _fits(value, ())
    if not (_fits(value, known[key]) or is_list_of_gathers):
        raise BadParameter(f"{file}: {key} = {value!r} should be like {json.dumps(strict[key])}")


def _read_limits(given: Any, path: Path) -> dict[str, float]:
    """The [limits] of a policy over the defaults; unknown keys and negative numbers are refused."""
    if not isinstance(given, dict):
        raise BadParameter(f"{path.name}: limits is a section, written [limits]")
    for key, value in given.items():
        if key not in limits.DEFAULTS:
            raise BadParameter(f"{path.name}: [limits] has no key {key!r}: {suggest(key, limits.DEFAULTS)}")
        if not _fits(value, limits.DEFAULTS[key]):
            raise BadParameter(f"{path.name}: [limits] {key} = {value!r} should be a number of 0 or more")
    return {**limits.DEFAULTS, **given}


def defaults() -> dict[str, Any]:
    """The rules of a policy file that says nothing: stricter than those of a simulation."""
    return toml_text.loads(TEMPLATE)


def _fits(value: Any, default: Any) -> bool:
    """Whether a value has the type of the default it replaces."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, str):
        return isinstance(value, str)
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= LARGEST  # not NaN, which would lift any limit
