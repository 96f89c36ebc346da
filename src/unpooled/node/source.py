"""A node's table: csv, parquet, npz or a database, under the federation's column names, at once or in chunks. Nothing is sent.

A table larger than memory is read anew for each question, `chunk_rows` rows at a time; it serves questions that add over rows.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unpooled.client import Client
from unpooled.data import checks, files
from unpooled.data.files import Columns
from unpooled.data.frames import matrix
from unpooled.errors import BadData, BadParameter, DataNotFound, DataWarning, suggest
from unpooled.node.preparation import NOTHING, Preparation, clip, limit_units
from unpooled.node.site import Rows


class Table(Protocol):
    """Named columns somewhere."""

    where: str

    def names(self) -> list[str]: ...

    def chunks(self, names: Sequence[str], rows: int) -> Iterator[Columns]:
        """The named columns, `rows` rows at a time; all at once for 0."""


class TableSource:
    """A table as a client's rows: `columns` maps the federation's names to the table's."""

    def __init__(
        self,
        name: str,
        table: Table,
        *,
        columns: Mapping[str, str] | None = None,
        label: str | None = None,
        sample_weight: str | None = None,
        chunk_rows: int = 0,
        preparation: Preparation = NOTHING,
    ):
        self.name, self.table, self._label, self._weight = name, table, label, sample_weight
        self.chunk_rows, self.preparation = chunk_rows, preparation
        self._map, self.label = columns, label is not None

    @cached_property
    def mapping(self) -> dict[str, str]:
        """Federation's name -> the table's, checked against the table."""
        held, apart = self.table.names(), self._apart
        mapping = dict(self._map) if self._map else {c: c for c in held if c not in apart}
        for column in [*mapping.values(), *apart]:
            if column not in held:
                raise BadData(f"{self.table.where} has no column {column!r}: {suggest(column, held)}")
        return mapping

    @property
    def columns(self) -> list[str]:
        return list(self.mapping)

    @property
    def _apart(self) -> list[str]:
        """Columns of the table that are no features."""
        return [c for c in (self._label, self._weight, self.preparation.unit) if c is not None]

    def open(self, columns: Sequence[str] | None) -> Rows:
        """The rows with these columns in this order, read now or (in chunks) at each question."""
        wanted = [self.mapping[c] for c in (self.columns if columns is None else columns)]
        if not self.chunk_rows:
            client = self._client(self._joined(wanted), wanted)
            _check(client, self.columns if columns is None else list(columns))
            return Rows(lambda: iter([client]), len(client.w), True)
        count = sum(len(next(iter(c.values()))) for c in self._chunks(wanted))
        if count == 0:
            raise BadData(f"{self.table.where} is empty: give it rows")
        return Rows(lambda: (self._client(c, wanted) for c in self._chunks(wanted)), count, count <= self.chunk_rows)

    def _chunks(self, wanted: Sequence[str]) -> Iterator[Columns]:
        names = list(dict.fromkeys([*wanted, *self._apart]))
        chunks = limit_units(self.table.chunks(names, self.chunk_rows), self.preparation, self.table.where)
        return (c for c in chunks if len(next(iter(c.values()))))

    def _joined(self, wanted: Sequence[str]) -> Columns:
        parts = list(self._chunks(wanted))
        if not parts:
            raise BadData(f"{self.table.where} is empty: give it rows")
        return parts[0] if len(parts) == 1 else {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}

    def _client(self, held: Columns, wanted: Sequence[str]) -> Client:
        x = matrix({c: held[c] for c in wanted}, self.table.where).astype(np.float64, copy=False)
        if np.isinf(x).any():
            raise BadData(f"{self.table.where} holds infinite values: use an empty cell for what is missing")
        ours = {theirs: name for name, theirs in self.mapping.items()}
        x = clip(x, [ours[c] for c in wanted], self.preparation)
        y = None if self._label is None else held[self._label]
        w = None if self._weight is None else np.asarray(held[self._weight], np.float64)
        return Client(self.name, x, y, w)


def _check(client: Client, columns: list[str]) -> None:
    """What `federate` checks in process; a column that is constant at one site is nothing unusual."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        checks.check([checks.Part(client.name, client.x, client.y, client.w, columns, f"the data of {client.name!r}")])


# ---- files ----


class FileTable:
    """csv, csv.gz, parquet or npz."""

    def __init__(self, path: Path):
        self.path, self.where = path, path.name
        kind = path.name.lower()
        self._csv, self._parquet = kind.endswith((".csv", ".csv.gz")), kind.endswith(".parquet")

    def names(self) -> list[str]:
        if not self.path.is_file():
            raise DataNotFound(f"{self.path} is not a file: check [data] path")
        if self._csv:
            return files.header_of(self.path)[0]
        if self._parquet:
            return list(_arrow("parquet").read_schema(self.path).names)
        return list(files.read(self.path))

    def chunks(self, names: Sequence[str], rows: int) -> Iterator[Columns]:
        if rows and self._csv:
            yield from _cut(self._csv_blocks(names), rows)
        elif rows and self._parquet:
            yield from _cut(_arrow("parquet").ParquetFile(self.path).iter_batches(rows, columns=list(names)), rows)
        else:
            whole = files.read(self.path)
            n = len(next(iter(whole.values())))
            for start in range(0, n, rows or max(n, 1)):
                yield {c: whole[c][start : start + (rows or n)] for c in names}

    def _csv_blocks(self, names: Sequence[str]) -> Iterator[Any]:
        """Blocks of a file that is never read whole; features are numbers in every block, as they are in the first."""
        csv, (header, delimiter) = _arrow("csv"), files.header_of(self.path)
        how = csv.ReadOptions(column_names=header, skip_rows=1, block_size=2**22), csv.ParseOptions(delimiter=delimiter)
        options: dict[str, Any] = {"null_values": files.MISSING, "strings_can_be_null": True, "include_columns": names}
        first = csv.open_csv(self.path, *how, csv.ConvertOptions(**options)).schema
        types = {f.name: "float64" for f in first if _arrow("types").is_integer(f.type)}
        return csv.open_csv(self.path, *how, csv.ConvertOptions(**options, column_types=types))


def _cut(batches: Iterator[Any], rows: int) -> Iterator[Columns]:
    """Batches of at most so many rows."""
    for batch in batches:
        for start in range(0, len(batch), rows):
            piece = _arrow("lib").Table.from_batches([batch.slice(start, rows)])
            yield {c: files.from_arrow(piece[c]) for c in piece.column_names}


def _arrow(part: str) -> Any:
    try:
        return import_module(f"pyarrow.{part}")
    except ImportError as error:
        raise BadData("reading in chunks, and parquet, need pyarrow: pip install 'unpooled[parquet]'") from error


# ---- databases ----


class SqlTable:
    """A table or query of any database that SQLAlchemy speaks to; `order` makes the rows come in the same order each time."""

    def __init__(self, url: str, *, table: str | None = None, query: str | None = None, order: str | None = None):
        if (table is None) == (query is None):
            raise BadParameter("[data] with a url needs either a table or a query")
        self.url, self.table, self.query, self.order = url, table, query, order
        self.where = f"table {table!r}" if table else "the query"

    @cached_property
    def _engine(self) -> Any:
        try:
            from sqlalchemy import NullPool, create_engine
        except ImportError as error:
            raise BadData("a database needs SQLAlchemy: pip install 'unpooled[sql]'") from error
        return create_engine(os.path.expandvars(self.url), poolclass=NullPool)

    def _statement(self, names: Sequence[str] | None) -> Any:
        import sqlalchemy as sa

        if self.query is not None:
            inner = sa.text(self.query.rstrip().rstrip(";"))
            if names is None:
                return inner
            given = inner.columns(*(sa.column(c) for c in self._keys(inner))).subquery()
            chosen = sa.select(*(given.c[c] for c in names))
            return chosen.order_by(given.c[self.order]) if self.order else chosen
        schema, _, name = str(self.table).rpartition(".")
        columns = "*" if names is None else None
        held = sa.table(name, *(sa.column(c) for c in {*(names or ()), *([self.order] if self.order else ())}))
        held.schema = schema or None
        chosen = (
            sa.select(sa.text(columns)).select_from(held) if columns else sa.select(*(held.c[c] for c in names or ()))
        )
        return chosen.order_by(held.c[self.order]) if self.order else chosen

    def _keys(self, statement: Any) -> list[str]:
        options = {"stream_results": True}
        with self._engine.connect().execution_options(**options) as held, held.execute(statement) as result:
            return list(result.keys())

    def names(self) -> list[str]:
        return self._keys(self._statement(None))

    def chunks(self, names: Sequence[str], rows: int) -> Iterator[Columns]:
        options = {"stream_results": True, "max_row_buffer": rows or 100_000}
        statement = self._statement(names)
        with (
            self._engine.connect().execution_options(**options) as connection,
            connection.execute(statement) as result,
        ):
            for part in result.partitions(rows or 100_000):
                yield {name: _column(list(values)) for name, values in zip(names, zip(*part))}


def _column(values: list[Any]) -> np.ndarray:
    """A column of a database: numbers with NaN for NULL, anything else as it is."""
    numbers = [np.nan if v is None else v for v in values]
    if any(isinstance(v, str) for v in numbers):
        return np.array(values, dtype=object)
    try:
        return np.array(numbers, dtype=np.int64 if all(type(v) is int for v in numbers) else np.float64)
    except (TypeError, ValueError):
        return np.array(values, dtype=object)
