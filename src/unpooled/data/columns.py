"""Encoded tables from the columns of clients: kinds inferred or declared, agreed over clients, then cells to numbers.

Nothing is sent: this is what `federate` does to frames and files in one process.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.data.files import Columns
from unpooled.data.frames import matrix
from unpooled.data.schema import Column, Own, Schema, Texts, as_texts, encode, infer
from unpooled.data.schema.agree import CHECK, agree, completed
from unpooled.data.schema.column import AUTO
from unpooled.data.schema.encode import decode_column, encode_column, without_codes
from unpooled.errors import BadData, BadParameter, DataWarning, suggest

UNION = "union"


class Table(NamedTuple):
    """The columns of one client by the federation's names, and how the client writes them."""

    columns: Columns
    own: Mapping[str, Own]
    where: str  # its name in messages


def renamed(columns: Columns, own: Mapping[str, Own], where: str) -> Columns:
    """The columns under the federation's names; those that a client lacks are left out."""
    theirs = {mine.name: name for name, mine in own.items() if mine.name is not None}
    for there in theirs:
        if there not in columns:
            raise BadData(f"{where} has no column {there!r}: {suggest(there, columns)}")
    gone = {name for name, mine in own.items() if mine.lacks or (mine.name is not None and mine.name != name)}
    return {theirs.get(c, c): values for c, values in columns.items() if c in theirs or c not in gone}


def names_of(tables: Sequence[Table], declared: Schema | None, union: bool) -> list[str]:
    """The columns that are used: those of the first client, or of any for a union; refused if clients differ otherwise."""
    unused = {c.name for c in declared or () if not c.used}
    lists = [[c for c in t.columns if c not in unused] for t in tables]
    names = list(dict.fromkeys(c for held in (lists if union else lists[:1]) for c in held))
    for table, held in zip(tables, lists):
        lacks = [c for c in names if c not in held and not _lacks(table, c)]
        extra = [c for c in held if c not in names]
        if (lacks and not union) or extra:
            raise BadData(_differ(table, tables[0], lacks, extra))
    return names


def refuse_unknown(declared: Schema | None, tables: Sequence[Table], names: Sequence[str]) -> None:
    """Refuse declarations of columns that no client has."""
    given = {c.name: "columns=" for c in declared or () if c.used}
    given |= {name: f"sites= ({t.where})" for t in tables for name, own in t.own.items() if not own.lacks}
    unused = {c.name for c in declared or () if not c.used}
    for name, where in given.items():
        if name not in names and name not in unused:
            raise BadData(f"{where} describes {name!r}, which no client has: {suggest(name, names)}; {CHECK}")


def _lacks(table: Table, name: str) -> bool:
    """Whether the site declares that it has no such column."""
    return name in table.own and table.own[name].lacks


def _differ(table: Table, first: Table, lacks: list[str], extra: list[str]) -> str:
    """The sentence that refuses a client with other columns than the first one."""
    does = f"has no column {lacks[0]!r}" if lacks else f"has a column {extra[0]!r}"
    other = f"{first.where} has" if lacks else f"{first.where} has not"
    instead = f" (it has {extra[0]!r} instead)" if lacks and extra else ""
    return (
        f"{table.where} {does} that {other}{instead}: give all clients the same columns, or columns='union' where some "
        f"lack some; {CHECK}"
    )


def schema_of(tables: Sequence[Table], names: Sequence[str], declared: Schema | None) -> Schema:
    """The kinds and levels of the columns over all clients."""
    columns = []
    for name in names:
        given = declared[name] if declared is not None and name in declared else Column(name, AUTO)
        found = {t.where: shown(given, t, name) for t in tables}
        column = agree(name, found) if given == Column(name, AUTO) else completed(given, found)
        if column.kind == "id" and given.kind != "id":
            text = f"column {name!r} holds another text in every row: taken as an id and not used (say so: kind = 'id')"
            warnings.warn(text, DataWarning, stacklevel=5)
        columns.append(column)
    return Schema(tuple(columns))


def shown(given: Column, table: Table, name: str) -> Column | None:
    """What a client's values show of a column, where its declaration leaves something open."""
    if name not in table.columns or not (given.kind == AUTO or _needs_levels(given)):
        return None
    own = table.own.get(name, Own())
    values = without_codes(table.columns[name], (*given.missing, *own.missing))
    if own.levels:
        values = _mapped(as_texts(values), own)
    if given.kind == AUTO:
        return infer(name, values, table.where)
    texts = as_texts(values)
    levels = texts.levels if texts.declared else texts.present
    return Column(name, given.kind, levels=tuple(levels)) if levels else None


def _needs_levels(column: Column) -> bool:
    """Whether the levels of a column have still to be agreed."""
    return column.kind in ("category", "ordered") and not column.levels


def _mapped(texts: Texts, own: Own) -> Texts:
    """The site's levels under the names that the federation uses."""
    levels = [own.levels.get(t, t) for t in texts.levels]
    found, to = np.unique(levels, return_inverse=True)
    return Texts(np.append(to, -1)[texts.codes], found.tolist())


def table_matrix(schema: Schema, table: Table, declared: bool) -> np.ndarray:
    """(n, d) one client's table as numbers; float32 is kept where all columns are numbers of that kind and none is declared."""
    held = [c for c in schema.names if c in table.columns]
    if schema.plain and len(held) == len(schema) and not (table.own or declared):
        return matrix({c: table.columns[c] for c in held}, table.where)
    if not len(schema):
        return matrix({}, table.where)
    own = {name: mine.renamed() for name, mine in table.own.items()}
    rows = len(next(iter(table.columns.values())))
    return encode(schema, table.columns, table.where, own, lacking=True, rows=rows)


def labels_of(column: Column | None, values: Any, own: Own, where: str) -> np.ndarray:
    """(n,) labels by their declaration: codes for missing are None or NaN, own texts are the federation's levels."""
    if column is None and not (own.levels or own.missing):
        return np.asarray(values)
    if column is not None and column.levels:
        return decode_column(column, encode_column(column, values, where, own))
    if column is not None and column.kind in ("real", "positive", "count", "binary"):
        return encode_column(column, values, where, own)
    codes = (*(column.missing if column is not None else ()), *own.missing)
    return np.asarray(_mapped(as_texts(without_codes(values, codes)), own))


def read_columns(columns: Any, schema: Any) -> tuple[Any, Schema | None, bool]:
    """(columns to use or None, declared schema or None, whether clients may lack columns) from what `federate` was given."""
    union = isinstance(columns, str) and columns == UNION
    if isinstance(columns, str) and not union:
        raise BadParameter(f"columns={columns!r} is not known: give names, kinds by name, or 'union'")
    if isinstance(columns, Mapping | Schema):
        if schema is not None:
            raise BadParameter("columns= holds kinds and schema= is given as well: give one of them")
        columns, schema = None, columns
    declared = schema if schema is None or isinstance(schema, Schema) else Schema.from_toml(schema, "columns=")
    return (None if union or columns is None else tuple(columns)), declared, union
