"""Columns of numbers from PostgreSQL by its binary COPY: the bytes of many rows become arrays at once, ten times
faster than row by row.

Every column is sent as 8 bytes, so that all rows have the same width: a double with NaN for NULL, or a whole number of 64 bits, whose
smallest value stands for NULL. Nothing leaves the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from unpooled.data.files import Columns
from unpooled.errors import BadData

KINDS = {  # PostgreSQL's type number -> kind
    16: "bool",
    20: "long",
    21: "int",
    23: "int",
    700: "real",
    701: "double",
    1700: "decimal",
}
HEADER, END = 19, 2  # bytes before the first row, and of the mark after the last
NULL = np.iinfo(np.int64).min  # of a whole number of 64 bits


def can_copy(engine: Any) -> bool:
    """Whether this is PostgreSQL by the driver psycopg."""
    return (engine.dialect.name, engine.dialect.driver) == ("postgresql", "psycopg")


def kinds(type_numbers: Sequence[int]) -> list[str] | None:
    """The kind of every column by its type number; None where one does not hold numbers."""
    if not all(number in KINDS for number in type_numbers):
        return None
    return [KINDS[number] for number in type_numbers]


def as_sent(column: Any, kind: str) -> Any:
    """The expression that PostgreSQL sends for a column, 8 bytes in every row."""
    import sqlalchemy as sa

    if kind == "long":
        return sa.func.coalesce(column, sa.literal_column(f"'{NULL}'::int8"))
    if kind == "bool":
        column = sa.cast(column, sa.Integer)
    if kind == "real":
        column = sa.cast(column, sa.Text)  # .1 stays .1, as drivers read it
    return sa.func.coalesce(sa.cast(column, sa.Double), sa.literal_column("'NaN'::float8"))


def chunks(engine: Any, statement: Any, names: Sequence[str], kinds: Sequence[str], rows: int) -> Iterator[Columns]:
    """The columns of a statement, `rows` rows at a time; each column as `as_sent` makes it of its kind."""
    connection = engine.raw_connection()
    try:
        messages = _copied(connection.driver_connection.pgconn, _text(statement, engine))
        for block in _blocks(messages, rows):
            yield _parsed(block, names, kinds)
    finally:
        connection.invalidate()  # closed, also where the reader stops early


def _text(statement: Any, engine: Any) -> bytes:
    """The statement as PostgreSQL reads it, with percent signs as they were written."""
    dialect = type(engine.dialect)(paramstyle="named")
    select = statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    return f"COPY ({select}) TO STDOUT (FORMAT BINARY)".encode()


def _copied(pgconn: Any, command: bytes) -> Iterator[bytes]:
    """The messages of a COPY, one per row; the last has the end mark alone."""
    from psycopg.pq import ExecStatus

    started = pgconn.exec_(command)
    if started.status != ExecStatus.COPY_OUT:
        raise BadData(f"the database did not send its rows: {started.error_message.decode(errors='replace').strip()}")
    while (message := pgconn.get_copy_data(0))[0] > 0:
        yield bytes(message[1])
    ended = pgconn.get_result()
    if ended is not None and ended.status != ExecStatus.COMMAND_OK:
        raise BadData(f"the database stopped sending rows: {ended.error_message.decode(errors='replace').strip()}")


def _blocks(messages: Iterator[bytes], rows: int) -> Iterator[bytes]:
    """The bytes of `rows` rows at a time, without header and end mark."""
    first = next(messages)[HEADER:]
    every = (message for message in chain([first], messages) if len(message) > END)
    while block := b"".join(islice(every, rows)):
        yield block


def _parsed(block: bytes, names: Sequence[str], kinds: Sequence[str]) -> Columns:
    """The columns in the bytes of some rows: each row has its number of fields, then the length and value of each."""
    fields = [f"{i}" for i in range(len(names))]
    types = [(f, ">i8" if kind == "long" else ">f8") for f, kind in zip(fields, kinds)]
    layout = [("fields", ">i2")]
    for field, dtype in types:
        layout += [(f"bytes {field}", ">i4"), (field, dtype)]
    table = np.frombuffer(block, dtype=np.dtype(layout))
    return {name: _column(table[f], kind) for name, f, kind in zip(names, fields, kinds)}


def _column(sent: np.ndarray, kind: str) -> np.ndarray:
    """Whole numbers as int64 where none is missing, else doubles."""
    if kind == "long":
        is_null = sent == NULL
        return np.where(is_null, np.nan, sent.astype(np.float64)) if is_null.any() else sent.astype(np.int64)
    found = sent.astype(np.float64)
    return found.astype(np.int64) if kind == "int" and not np.isnan(found).any() else found
