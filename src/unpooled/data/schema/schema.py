"""The columns of a federation in order, to and from the [columns] of a config or study. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unpooled.data.schema.column import WITH_LEVELS, Column, Own, read_column, read_own_column
from unpooled.errors import BadParameter, suggest


@dataclass(frozen=True)
class Schema:
    """The kinds, units, levels and missing codes of a table's columns, the same at every site.

    Parameters
    ----------
    columns : tuple of Column
        The columns in the order of the encoded table.

    Attributes
    ----------
    names, kinds : list of str
        One per column.

    Examples
    --------
    >>> schema = Schema.from_toml({"age": "positive", "sex": {"levels": ["female", "male"]}, "patient": "id"})
    >>> schema.used.names
    ['age', 'sex']
    >>> schema["sex"].kind
    'category'
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        """Refuse two columns of one name."""
        names = [c.name for c in self.columns]
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise BadParameter(f"the schema has two columns called {twice!r}: name each once")

    @classmethod
    def from_toml(cls, body: Mapping[str, Any], where: str = "[columns]") -> Schema:
        """The schema that [columns] describes: name = kind, or name = {kind, unit, levels, missing, other}."""
        return cls(tuple(read_column(str(name), entry, where) for name, entry in body.items()))

    def to_toml(self) -> dict[str, Any]:
        """The body of [columns]: name -> {kind, unit, levels, missing, other}."""
        return {c.name: c.to_toml() for c in self.columns}

    @classmethod
    def from_list(cls, entries: Sequence[Mapping[str, Any]]) -> Schema:
        """The schema that `to_list` gave."""
        bodies = {str(e["name"]): {k: v for k, v in e.items() if k != "name"} for e in entries}
        return cls.from_toml(bodies)

    def to_list(self) -> list[dict[str, Any]]:
        """One dict per column, in order, to be saved or sent: name, kind, unit, levels, missing, other."""
        return [{"name": c.name, **c.to_toml()} for c in self.columns]

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [c.name for c in self.columns]

    @property
    def kinds(self) -> list[str]:
        """Kinds of the columns, in order."""
        return [c.kind for c in self.columns]

    @property
    def used(self) -> Schema:
        """The columns that models see: all but ids and ignored ones."""
        return Schema(tuple(c for c in self.columns if c.used))

    @property
    def plain(self) -> bool:
        """Whether every column is a number that is used as it is."""
        return all(c.plain for c in self.columns)

    def of_kind(self, *kinds: str) -> list[int]:
        """The places of the columns of these kinds."""
        return [j for j, c in enumerate(self.columns) if c.kind in kinds]

    @property
    def with_levels(self) -> list[int]:
        """The places of binary, category and ordered columns."""
        return self.of_kind(*WITH_LEVELS)

    def only(self, names: Sequence[str]) -> Schema:
        """The schema of these columns, in this order."""
        return Schema(tuple(self[name] for name in names))

    def __getitem__(self, name: str) -> Column:
        """The column called `name`; an error that suggests the nearest name when there is none."""
        found = next((c for c in self.columns if c.name == name), None)
        if found is None:
            raise BadParameter(f"the schema has no column {name!r}: {suggest(name, self.names)}")
        return found

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return name in self.names

    def __iter__(self) -> Iterator[Column]:
        """The columns, in order."""
        return iter(self.columns)

    def __len__(self) -> int:
        """The number of columns."""
        return len(self.columns)


@dataclass(frozen=True)
class Wanted:
    """What a federation wants of a site's table besides the names of the features.

    Parameters
    ----------
    schema : Schema or None, default=None
        Kinds of the features, of the labels and of others; None for numbers alone.
    label, weight : str or None, default=None
        The columns of labels and of row weights, by the federation's names; None for those that the site says itself.
    """

    schema: Schema | None = None
    label: str | None = None
    weight: str | None = None

    def pack(self) -> dict[str, Any] | None:
        """To be sent; None where nothing is wanted."""
        if self == Wanted():
            return None
        listed = None if self.schema is None else self.schema.to_list()
        return {"schema": listed, "label": self.label, "weight": self.weight}

    @classmethod
    def unpack(cls, body: Mapping[str, Any] | None) -> Wanted:
        """What `pack` gave."""
        if body is None:
            return cls()
        listed = body.get("schema")
        return cls(None if listed is None else Schema.from_list(listed), body.get("label"), body.get("weight"))

    @property
    def features(self) -> Schema | None:
        """The columns that models see."""
        if self.schema is None:
            return None
        return Schema(tuple(c for c in self.schema.used if c.name not in (self.label, self.weight)))


def read_own(body: Mapping[str, Any] | None, where: str = "[data.columns]") -> dict[str, Own]:
    """How a site writes its columns: federation's name -> Own."""
    return {str(name): read_own_column(str(name), entry, where) for name, entry in (body or {}).items()}
