"""One column of a table: its kind, unit, levels and missing codes; and what a site calls it. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from unpooled.errors import BadParameter, suggest

KINDS = ("real", "positive", "count", "binary", "category", "ordered", "date", "id", "ignored")
NUMBERS = ("real", "positive", "count")  # kinds whose cells are numbers
WITH_LEVELS = ("binary", "category", "ordered")  # kinds whose cells are codes of levels: 0, 1, ...
NOT_USED = ("id", "ignored")  # kinds that no model sees
AUTO = "auto"  # a kind that is still to be inferred from the values
MAX_LEVELS = 1000


@dataclass(frozen=True)
class Column:
    """What a column holds, agreed over all sites.

    Parameters
    ----------
    name : str
        Its name in the federation.
    kind : {"real", "positive", "count", "binary", "category", "ordered", "date", "id", "ignored"}, default="real"
        What its cells are; "auto" is found out from the values. A date is counted in days since 1970-01-01; ids and
        ignored columns are used by no model.
    unit : str or None, default=None
        The unit of numbers, such as "mg/dL".
    levels : tuple of str, default=()
        The levels in order; a cell is encoded as the place of its level, from 0. The first is the
        reference level of predictors. A binary column without levels holds 0 and 1.
    missing : tuple of str or float, default=()
        Codes that mean missing, such as -9 or "unknown"; empty cells are missing anyway.
    other : str or None, default=None
        The level used for all strings that are not listed; None refuses them in a fit.

    Examples
    --------
    >>> Column("sex", "binary", levels=("female", "male")).n_levels
    2
    """

    name: str
    kind: str = "real"
    unit: str | None = None
    levels: tuple[str, ...] = ()
    missing: tuple[Any, ...] = ()
    other: str | None = None

    def __post_init__(self) -> None:
        """Refuse a kind that does not exist, and levels that do not fit the kind."""
        where = f"column {self.name!r}"
        if self.kind not in (*KINDS, AUTO):
            raise BadParameter(f"{where} has the kind {self.kind!r}: {suggest(self.kind, KINDS)}")
        if self.levels and self.kind not in WITH_LEVELS:
            raise BadParameter(f"{where} is of kind {self.kind!r} and has levels: make it a category or leave them out")
        if len(set(self.levels)) < len(self.levels):
            raise BadParameter(f"{where} lists a level twice: name each once")
        if len(self.levels) > MAX_LEVELS:
            raise BadParameter(
                f"{where} has {len(self.levels)} levels, at most {MAX_LEVELS} are possible: group them, or make it an id"
            )
        if self.kind == "binary" and len(self.levels) not in (0, 2):
            raise BadParameter(f"{where} is binary and has {len(self.levels)} levels: give two, or make it a category")
        if self.unit is not None and self.kind not in (*NUMBERS, AUTO):
            raise BadParameter(f"{where} is of kind {self.kind!r} and has a unit: only numbers have one")
        if self.other is not None and self.other not in self.levels:
            raise BadParameter(f"{where} has other = {self.other!r}, which is none of its levels: add it to them")

    @property
    def used(self) -> bool:
        """Whether models see it."""
        return self.kind not in NOT_USED

    @property
    def n_levels(self) -> int:
        """The number of codes; 2 for a binary column without levels, 0 for numbers and dates."""
        return len(self.levels) or 2 * (self.kind == "binary")

    @property
    def plain(self) -> bool:
        """Whether its cells are used as they are: numbers without a unit, levels or codes."""
        bare = self.kind == "real" or (self.kind == "binary" and not self.levels)
        return bare and not self.missing and self.unit is None

    def to_toml(self) -> dict[str, Any]:
        """Its entry in [columns], without fields that have their default."""
        entry: dict[str, Any] = {} if self.kind == AUTO else {"kind": self.kind}
        if self.unit is not None:
            entry["unit"] = self.unit
        if self.levels:
            entry["levels"] = list(self.levels)
        if self.missing:
            entry["missing"] = list(self.missing)
        if self.other is not None:
            entry["other"] = self.other
        return entry


@dataclass(frozen=True)
class Own:
    """How one site stores a column: its entry in the site's [data.columns].

    Parameters
    ----------
    name : str or None, default=None
        The column's name in the site's table; None where it is the federation's.
    unit : str or None, default=None
        The unit in which the site has it; None where it is the federation's.
    factor : float or None, default=None
        What its numbers are multiplied by to have the federation's unit; None where the units say it.
    levels : dict of str to str, default={}
        The site's strings -> the federation's levels.
    missing : tuple of str or float, default=()
        The site's own codes for missing values, besides the federation's.
    lacks : bool, default=False
        Whether the site does not have the column: it is missing in every row there.
    """

    name: str | None = None
    unit: str | None = None
    factor: float | None = None
    levels: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[Any, ...] = ()
    lacks: bool = False

    def renamed(self) -> Own:
        """The same for a table whose columns have the federation's names already."""
        return replace(self, name=None)


def read_column(name: str, entry: Any, where: str) -> Column:
    """A column from its entry in [columns]: a kind, or a table of kind, unit, levels, missing and other."""
    if isinstance(entry, Column):
        return entry
    body = {"kind": entry} if isinstance(entry, str) else entry
    known = {f.name for f in fields(Column)} - {"name"}
    _check_entry(name, body, known, where)
    levels = tuple(level_text(v) for v in _as_list(body.get("levels", ())))
    kind = body.get("kind") or ("category" if levels else AUTO)
    missing = tuple(_as_list(body.get("missing", ())))
    return Column(name, kind, body.get("unit"), levels, missing, body.get("other"))


def read_own_column(name: str, entry: Any, where: str) -> Own:
    """How a site writes a column, from its entry in [data.columns]: a name, false if it lacks it, or a table."""
    if isinstance(entry, Own):
        return entry
    if entry is False:
        return Own(lacks=True)
    if isinstance(entry, str):
        return Own(name=entry)
    _check_entry(name, entry, {f.name for f in fields(Own)} - {"lacks"}, where)
    body = dict(entry)
    levels = body.get("levels", {})
    if not isinstance(levels, Mapping):
        raise BadParameter(f'{where}: levels of {name!r} should map this site\'s texts to levels: {{m = "male"}}')
    body["levels"] = {level_text(k): level_text(v) for k, v in levels.items()}
    body["missing"] = tuple(_as_list(body.get("missing", ())))
    return Own(**body)


def _check_entry(name: str, body: Any, known: set[str], where: str) -> None:
    """Refuse an entry of [columns] that is not a table, or has an unknown key."""
    if not isinstance(body, Mapping):
        raise BadParameter(f"{where} has {name} = {body!r}: give a kind or a table such as {{kind = 'category'}}")
    for key in body:
        if key not in known:
            raise BadParameter(f"{where} has a key {key!r} for column {name!r}: {suggest(key, sorted(known))}")


def _as_list(values: Any) -> list[Any]:
    """One value or several, as a list."""
    return list(values) if isinstance(values, list | tuple) else [values]


def level_text(value: Any) -> str:
    """A level as a string: whole numbers without a decimal point, bools as true and false.

    >>> level_text(2.0), level_text(True), level_text(" male ")
    ('2', 'true', 'male')
    """
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return str(bool(value)).lower()
    if isinstance(value, str):
        return value.strip()
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return str(int(number)) if number.is_integer() else repr(number)
