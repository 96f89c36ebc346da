"""A node's table: csv, parquet, npz or a database, under the federation's column names, at once or in chunks. Nothing is sent.

A table larger than memory is read anew for each question, `chunk_rows` rows at a time; it serves questions that add over rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import missing
from unpooled.client import Client
from unpooled.data import checks
from unpooled.data.check import Profile, profile
from unpooled.data.columns import labels_of
from unpooled.data.files import Columns
from unpooled.data.frames import matrix
from unpooled.data.schema import Column, Own, Schema, Wanted, encode, read_own
from unpooled.errors import BadData, suggest
from unpooled.node.databases import SqlTable
from unpooled.node.preparation import NOTHING, Preparation, clip, limit_units
from unpooled.node.rows import NUMBERS_ALONE, Rows
from unpooled.node.tables import FileTable, Table

__all__ = ["FileTable", "SqlTable", "Table", "TableSource"]

PROFILED = 1_000_000  # rows that a check looks at
log = logging.getLogger("unpooled.node")


class Reading(NamedTuple):
    """One way to read a table: the features in order, and what is known of them."""

    columns: list[str]  # the features, by the federation's names
    schema: Schema | None  # their kinds; None for numbers alone
    label: str | None  # the table's own name of the labels
    declared: Column | None  # what is declared of the labels
    own_label: Own  # how this site writes them
    weight: str | None  # the table's own name of the weights


class TableSource:
    """A table as a client's rows.

    Parameters
    ----------
    name : str
        The node's name.
    table : Table
        Where the rows are.
    columns : mapping or None, default=None
        How this site writes the federation's columns: its own name, a dict of name, unit, factor, levels and missing, or False
        for a column that it lacks. None: every column is called as in the table.
    label, sample_weight : str or None, default=None
        The table's columns of labels and row weights.
    chunk_rows : int, default=0
        Rows in memory at a time; 0 for all.
    preparation : Preparation, default=NOTHING
        What is done to the rows before any question sees them.
    """

    def __init__(
        self,
        name: str,
        table: Table,
        *,
        columns: Mapping[str, Any] | None = None,
        label: str | None = None,
        sample_weight: str | None = None,
        chunk_rows: int = 0,
        preparation: Preparation = NOTHING,
    ):
        self.name, self.table, self.chunk_rows = name, table, chunk_rows
        self._label, self._weight, self.preparation = label, sample_weight, preparation
        self._own = read_own(columns)
        self.label = label is not None

    @cached_property
    def mapping(self) -> dict[str, str | None]:
        """Federation's name -> the table's, checked against the table; None for a column that the site lacks."""
        held = self.table.names()
        apart = [c for c in (self._label, self._weight, self.preparation.unit) if c is not None]
        listed = {name: None if own.lacks else own.name or name for name, own in self._own.items()}
        mapping: dict[str, str | None] = dict(listed) or {c: c for c in held if c not in apart}
        for column in [*mapping.values(), *apart]:
            if column is not None and column not in held:
                raise BadData(f"{self.table.where} has no column {column!r}: {suggest(column, held)}")
        return mapping

    @property
    def columns(self) -> list[str]:
        """Names of the columns in the federation."""
        return list(self.mapping)

    def open(self, columns: Sequence[str] | None, wanted: Wanted = NUMBERS_ALONE) -> Rows:
        """The rows with these columns in this order, read now or (in chunks) at each question."""
        reading = self._reading(columns, wanted)
        if not self.chunk_rows:
            client = self._whole(reading)
            _check(client, reading.columns)
            return Rows(lambda: iter([client]), len(client.w), True)
        count = self._count(reading)
        if count == 0:
            raise BadData(f"{self.table.where} is empty: give it rows")
        return Rows(lambda: self._clients(reading), count, count <= self.chunk_rows)

    def profile(self, columns: Sequence[str], wanted: Wanted, floor: int) -> Profile:
        """What a check is told of the columns, and of the labels, from the first `PROFILED` rows."""
        label = self._chosen(wanted.label, self._label)
        own_names = {c: str(self.mapping[c]) for c in columns if self.mapping[c] is not None}
        if label is not None and wanted.label is not None:
            own_names[wanted.label] = label
        names = list(dict.fromkeys(own_names.values()))
        n_chunks = max(1, PROFILED // (self.chunk_rows or PROFILED))
        held = _joined(list(islice(self.table.chunks(names, self.chunk_rows), n_chunks)))
        table = {c: held[name] for c, name in own_names.items()}
        # codes of the coordinator's choice would let it count rows of any value by differences: this node's own hold
        declared = {c.name: replace(c, missing=()) for c in wanted.schema or ()}
        own = {c: o.renamed() for c, o in self._own.items()}
        return profile(self.name, table, label=wanted.label, floor=floor, declared=declared, own=own)

    def _reading(self, columns: Sequence[str] | None, wanted: Wanted) -> Reading:
        """Which columns are read and how: names, kinds, label and weight."""
        names = self.columns if columns is None else list(columns)
        schema = None if wanted.schema is None else wanted.schema.only(names)
        label = self._chosen(wanted.label, self._label)
        declared = None
        if wanted.schema is not None and wanted.label is not None and wanted.label in wanted.schema:
            declared = wanted.schema[wanted.label]
        own = self._own.get(wanted.label or "", Own())
        return Reading(names, schema, label, declared, own.renamed(), self._chosen(wanted.weight, self._weight))

    def _chosen(self, asked: str | None, mine: str | None) -> str | None:
        """The table's column for labels or weights: the one asked for if the site has it, else its own."""
        return self.mapping[asked] if asked is not None and asked in self.mapping else mine

    # ---- rows ----

    def _clients(self, reading: Reading) -> Iterator[Client]:
        """One client per chunk that has rows."""
        return (client for held in self._chunks(reading) if len((client := self._client(held, reading)).w))

    def _whole(self, reading: Reading) -> Client:
        """All rows as one client; an empty table is refused."""
        parts = list(self._chunks(reading))
        if not parts:
            raise BadData(f"{self.table.where} is empty: give it rows")
        return self._client(_joined(parts), reading, tell=True)

    def _count(self, reading: Reading) -> int:
        """Rows that have a label, or all rows; reads as few columns as it can."""
        if reading.label is None:
            first = next(c for c in map(self.mapping.get, reading.columns) if c is not None)
            return sum(len(c[first]) for c in self._held([first], reading))
        found = self._held([reading.label], reading)
        labels = [labels_of(reading.declared, c[reading.label], reading.own_label, self.table.where) for c in found]
        left_out = sum(int(missing(y).sum()) for y in labels)
        self._tell(left_out)
        return sum(map(len, labels)) - left_out

    def _chunks(self, reading: Reading) -> Iterator[Columns]:
        """The columns of each chunk that has rows."""
        names = [*(self.mapping[c] for c in reading.columns), reading.label, reading.weight]
        return (c for c in self._held([c for c in names if c is not None], reading) if len(next(iter(c.values()))))

    def _held(self, names: Sequence[str], reading: Reading) -> Iterator[Columns]:
        """Columns by the table's own names, without the rows that the policy leaves out."""
        unit = self.preparation.unit
        wanted = list(dict.fromkeys([*names, *([] if unit is None else [unit])]))
        chunks = self.table.chunks(wanted, self.chunk_rows, self._texts(reading))
        return limit_units(chunks, self.preparation, self.table.where)

    def _texts(self, reading: Reading) -> dict[str, bool]:
        """Whether the cells of the table's columns are texts, where a schema says it."""
        known = {self.mapping[c.name]: _is_text(c, self._own.get(c.name, Own())) for c in reading.schema or ()}
        if reading.declared is not None:
            known[reading.label] = _is_text(reading.declared, reading.own_label)
        return {name: is_text for name, is_text in known.items() if name is not None}

    def _client(self, held: Columns, reading: Reading, tell: bool = False) -> Client:
        """A chunk as a client: encoded, clipped to the policy's bounds, without rows that have no label."""
        x = self._matrix(held, reading)
        if np.isinf(x).any():
            raise BadData(f"{self.table.where} holds infinite values: use an empty cell for what is missing")
        x = clip(x, reading.columns, self.preparation)
        y = None
        if reading.label is not None:
            y = labels_of(reading.declared, held[reading.label], reading.own_label, self.table.where)
        w = None if reading.weight is None else np.asarray(held[reading.weight], np.float64)
        gaps = np.zeros(len(x), bool) if y is None else missing(y)
        if gaps.any():
            x, y, w = x[~gaps], y[~gaps], None if w is None else w[~gaps]  # type: ignore[index]
        if tell:
            self._tell(int(gaps.sum()))
        return Client(self.name, x, y, w)

    def _tell(self, left_out: int) -> None:
        """Say in the node's log how many rows have no label."""
        if left_out:
            log.warning("%d rows of %s have no label and are left out", left_out, self.table.where)

    def _matrix(self, held: Columns, reading: Reading) -> np.ndarray:
        """The columns of a chunk as numbers, in the federation's units and levels."""
        rows = len(next(iter(held.values())))
        mine = {c: held[there] for c in reading.columns if (there := self.mapping[c]) is not None}
        if reading.schema is None and len(mine) == len(reading.columns) and not any(map(_changes, self._own.values())):
            return matrix(mine, self.table.where).astype(np.float64, copy=False)
        schema = reading.schema or Schema(tuple(Column(c, "real") for c in reading.columns))
        own = {name: o.renamed() for name, o in self._own.items()}
        return encode(schema, mine, self.table.where, own, rows=rows)


def _changes(own: Own) -> bool:
    """Whether a site's cells differ from the federation's in more than the column's name."""
    return own.renamed() != Own()


def _is_text(column: Column, own: Own) -> bool:
    """Whether cells must be read as texts: levels, dates, and numbers beside a text that means missing."""
    codes = any(isinstance(c, str) for c in (*column.missing, *own.missing))
    return codes or bool(column.levels) or column.kind == "date"


def _joined(chunks: list[Columns]) -> Columns:
    """Chunks of a table, one behind the other."""
    if not chunks:
        raise BadData("the table holds no rows: check [data] path or query")
    if len(chunks) == 1:
        return chunks[0]
    return {name: np.concatenate([np.asarray(chunk[name]) for chunk in chunks]) for name in chunks[0]}


def _check(client: Client, columns: list[str]) -> None:
    """What `federate` checks in process; a column that is constant or missing at one site is nothing unusual."""
    part = checks.Part(client.name, client.x, client.y, client.w, columns, f"the data of {client.name!r}")
    checks.check([part], whole=False)
