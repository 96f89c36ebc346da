"""Encoded tables from frames and files: kinds inferred or declared, agreed over clients, then cells to numbers.

Nothing is sent: this is what `federate` does to columns with names in one process. `named_part` reads one client's columns,
`encoded` makes numbers of all clients' columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.data.checks import Part
from unpooled.data.files import Columns, read_table
from unpooled.data.frames import columns_of, matrix, pick
from unpooled.data.schema import Column, Own, Schema, Texts, as_texts, encode, infer, read_own
from unpooled.data.schema.agree import CHECK, agree, completed
from unpooled.data.schema.column import AUTO
from unpooled.data.schema.encode import decode_column, encode_column, without_codes
from unpooled.data.tables import Kinds, NamedArray, Roles, is_path, vector
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
    wanted = lists if union else lists[:1]
    names = list(dict.fromkeys(chain.from_iterable(wanted)))
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


# ---- what `federate` was given about columns ----


def read_kinds(columns: Any, schema: Any, sites: Any) -> tuple[tuple[str, ...] | None, Kinds]:
    """(columns to use or None for all, what is declared of columns) from the arguments of `federate`."""
    union = isinstance(columns, str) and columns == UNION
    if isinstance(columns, str) and not union:
        raise BadParameter(f"columns={columns!r} is not known: give names, kinds by name, or 'union'")
    if isinstance(columns, Mapping | Schema):
        if schema is not None:
            raise BadParameter("columns= holds kinds and schema= is given as well: give one of them")
        columns, schema = None, columns
    declared = schema if schema is None or isinstance(schema, Schema) else Schema.from_toml(schema, "columns=")
    own = {name: read_own(entry, f"sites.{name}") for name, entry in (sites or {}).items()}
    used = None if union or columns is None else tuple(columns)
    return used, Kinds(declared, union, own)


# ---- one client's columns, and those of all clients as numbers ----


def named_part(name: str, data: Any, y: Any, w: Any, roles: Roles, where: str, kinds: Kinds) -> Part:
    """One client's columns, labels and weights from a frame, a file or an array with names of columns."""
    own = kinds.sites.get(name, {})
    columns, named = columns_by_name(data, where)
    columns = renamed(columns, own, where)
    if is_path(data) and Path(data).suffix.lower() == ".npz" and roles.label is None:
        y = columns.pop("y", y)  # y of an npz file is its labels
    if roles.label is not None and own.get(roles.label, Own()).lacks:
        raise BadData(f"{where} lacks the labels {roles.label!r}, as its columns say: leave it out of this fit")
    if roles.label:
        y = pick(columns, roles.label, "label", where)
    if roles.sample_weight:
        w = pick(columns, roles.sample_weight, "sample_weight", where)
    groups = pick(columns, roles.by, "by", where) if roles.by else None
    if roles.label is not None:
        y = labels_of(kinds.of(roles.label), y, own.get(roles.label, Own()), where)
    if roles.columns is not None:
        _refuse_roles(roles)
        columns = {c: columns.pop(c) for c in roles.columns if _chosen(columns, c, where, kinds.union, own)}
    elif kinds.schema is not None:
        columns = {c: v for c, v in columns.items() if c not in kinds.schema or kinds.schema[c].used}
    rows = len(next(iter(columns.values()))) if columns else 0
    table = Table(columns, own, where)
    x = np.empty((rows, 0))  # until the columns are encoded
    return Part(name, x, vector(y), vector(w), list(columns) if named else None, where, groups, table)


def _refuse_roles(roles: Roles) -> None:
    """Refuse a chosen column that has another role."""
    for role in ("label", "sample_weight", "by"):
        name = getattr(roles, role)
        if name is not None and name in (roles.columns or ()):
            raise BadParameter(f"columns= names {name!r}, which is {role}= already: leave it out of the features")


def columns_by_name(data: Any, where: str) -> tuple[Columns, bool]:
    """(columns by name, whether they have names) of a frame, a file or a `NamedArray`."""
    if isinstance(data, NamedArray):
        return {c: to_numpy(data.x[:, j]) for j, c in enumerate(data.columns)}, True
    return (read_table(data), True) if is_path(data) else columns_of(data, where)


def _chosen(columns: Mapping[str, Any], name: str, where: str, union: bool, own: Mapping[str, Own]) -> bool:
    """Whether a chosen column is there; one that the client lacks must be known to be lacking."""
    if name not in columns and not (union or (name in own and own[name].lacks)):
        raise BadData(f"columns={name!r} is not a column of {where}: {suggest(name, columns)}")
    return name in columns


def encoded(parts: list[Part], kinds: Kinds, roles: Roles) -> tuple[list[Part], Schema]:
    """The parts with their columns as numbers, in the order of the first, and the schema that all agree on."""
    tables = [p.table for p in parts]
    names = names_of(tables, kinds.schema, kinds.union)
    if roles.columns is None:
        others = [v for v in (roles.label, roles.sample_weight, roles.by) if v is not None]
        refuse_unknown(kinds.schema, tables, [*names, *others])
    whole = schema_of(tables, names, kinds.schema)
    used = whole.used
    out = []
    for i, part in enumerate(parts):
        x = table_matrix(used, part.table, kinds.schema is not None)
        parts[i] = part._replace(table=None)  # each table is dropped once it is encoded
        tables[i] = None
        out.append(part._replace(x=x, columns=part.columns and used.names, table=None))
    return out, used
