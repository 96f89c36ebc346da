"""A table or query of a database as named columns, read by SQLAlchemy, or by binary COPY for numbers in PostgreSQL. Nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from unpooled.data.files import Columns
from unpooled.errors import BadData, BadParameter
from unpooled.node import copied

AT_ONCE = 100_000  # default number of rows in a chunk


class SqlTable:
    """A table or query of any database that SQLAlchemy supports.

    Parameters
    ----------
    url : str
        SQLAlchemy's address of the database; $NAME stands for an environment variable.
    table, query : str or None, default=None
        The table (with its schema, "ward.patients"), or a query whose rows are the table; one of the two.
    order : str or None, default=None
        A column to sort by, which makes the rows come in the same order each time.
    """

    def __init__(self, url: str, *, table: str | None = None, query: str | None = None, order: str | None = None):
        if (table is None) == (query is None):
            raise BadParameter("[data] with a url needs either a table or a query")
        self.url, self.table, self.query, self.order = url, table, query, order
        self.where = f"table {table!r}" if table else "the query"

    @cached_property
    def _engine(self) -> Any:
        """SQLAlchemy's engine, without a pool of connections: a node reads rarely and briefly."""
        try:
            from sqlalchemy import NullPool, create_engine
        except ImportError as error:
            raise BadData("a database needs SQLAlchemy: pip install 'unpooled[sql]'") from error
        return create_engine(os.path.expandvars(self.url), poolclass=NullPool)

    def names(self) -> list[str]:
        """Names of the columns of the table or query."""
        return self._keys(self._everything())

    def chunks(self, names: Sequence[str], rows: int, texts: Mapping[str, bool] | None = None) -> Iterator[Columns]:
        """Yield the columns `names` in chunks of `rows` rows, streamed from the database."""
        columns, order = self._columns(names)
        kinds = self._number_kinds(columns) if copied.can_copy(self._engine) else None
        if kinds is None:
            yield from self._fetched(self._statement(columns, order), names, rows or AT_ONCE)
            return
        to_copy = [copied.as_sent(column, kind) for column, kind in zip(columns, kinds)]
        statement = self._statement(to_copy, order)
        yield from copied.chunks(self._engine, statement, names, kinds, rows or AT_ONCE)

    def _fetched(self, statement: Any, names: Sequence[str], rows: int) -> Iterator[Columns]:
        """Columns of any type, fetched row by row by the database's driver."""
        options = {"stream_results": True, "max_row_buffer": rows}
        with (
            self._engine.connect().execution_options(**options) as connection,
            connection.execute(statement) as result,
        ):
            for part in result.partitions(rows):
                yield {name: _column(list(values)) for name, values in zip(names, zip(*part))}

    def _number_kinds(self, columns: list[Any]) -> list[str] | None:
        """How PostgreSQL stores each column, or None if one of them does not hold numbers."""
        with (
            self._engine.connect() as connection,
            connection.execute(self._statement(columns, None).limit(0)) as result,
        ):
            return copied.kinds([described[1] for described in result.cursor.description])

    # ---- statements ----

    def _everything(self) -> Any:
        """The SELECT of all columns."""
        import sqlalchemy as sa

        if self.query is not None:
            return self._inner()
        return sa.select(sa.text("*")).select_from(self._named(()))

    def _columns(self, names: Sequence[str]) -> tuple[list[Any], Any]:
        """(the columns of these names, the column to sort by or None)."""
        import sqlalchemy as sa

        if self.query is None:
            needed = {*names, self.order} if self.order else set(names)
            table: Any = self._named(needed)
        else:
            inner = self._inner()
            table = inner.columns(*(sa.column(c) for c in self._keys(inner))).subquery()
        order = table.c[self.order] if self.order else None
        return [table.c[c] for c in names], order

    def _statement(self, columns: Sequence[Any], order: Any) -> Any:
        """The SELECT of some columns, ordered where an order is given."""
        import sqlalchemy as sa

        chosen = sa.select(*columns)
        return chosen if order is None else chosen.order_by(order)

    def _inner(self) -> Any:
        """The query as it was written, without its last semicolon."""
        import sqlalchemy as sa

        return sa.text(str(self.query).rstrip().rstrip(";"))

    def _named(self, names: Any) -> Any:
        """The table with columns of these names."""
        import sqlalchemy as sa

        schema, _, name = str(self.table).rpartition(".")
        table = sa.table(name, *(sa.column(c) for c in names))
        table.schema = schema or None
        return table

    def _keys(self, statement: Any) -> list[str]:
        """Names of the columns that a statement gives, without reading rows."""
        options = {"stream_results": True}
        with self._engine.connect().execution_options(**options) as connection, connection.execute(statement) as result:
            return list(result.keys())


def _column(values: list[Any]) -> np.ndarray:
    """A column of a database: numbers with NaN for NULL, anything else as it is."""
    if values and type(values[0]) in (int, float):
        found = np.array(values)
        if found.dtype in (np.int64, np.float64):  # no NULL and no string: no need to look at single values
            return found
    numbers = [np.nan if v is None else v for v in values]
    if any(isinstance(v, str) for v in numbers):
        return np.array(values, dtype=object)
    try:
        return np.array(numbers, dtype=np.int64 if all(type(v) is int for v in numbers) else np.float64)
    except (TypeError, ValueError):
        return np.array(values, dtype=object)
