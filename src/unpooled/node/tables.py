"""Where a node's rows come from: a csv, parquet or npz file, or a database. Read at once or in chunks; nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from unpooled.data import files
from unpooled.data.files import Columns
from unpooled.errors import BadData, DataNotFound


class Table(Protocol):
    """Named columns of a file or a database."""

    where: str  # its name in messages

    def names(self) -> list[str]:
        """Names of the columns."""

    def chunks(self, names: Sequence[str], rows: int, texts: Mapping[str, bool] | None = None) -> Iterator[Columns]:
        """The named columns, `rows` rows at a time; all at once for 0.

        `texts` says of columns whether their cells are texts, dates or codes rather than numbers, where that is known.
        """


class FileTable:
    """A table in a csv, csv.gz, parquet or npz file."""

    def __init__(self, path: Path):
        self.path, self.where = path, path.name
        kind = path.name.lower()
        self._csv, self._parquet = kind.endswith((".csv", ".csv.gz")), kind.endswith(".parquet")

    def names(self) -> list[str]:
        """Names of the columns, read from the header."""
        if not self.path.is_file():
            raise DataNotFound(f"{self.path} is not a file: check [data] path")
        with files.readable(self.path):
            if self._csv:
                return files.header_of(self.path)[0]
            if self._parquet:
                return list(_arrow("parquet").read_schema(self.path).names)
            return list(files.read(self.path))

    def chunks(self, names: Sequence[str], rows: int, texts: Mapping[str, bool] | None = None) -> Iterator[Columns]:
        """Yield the columns `names` in chunks of `rows` rows (0: all at once)."""
        with files.readable(self.path):
            yield from self._chunks(names, rows, texts)

    def _chunks(self, names: Sequence[str], rows: int, texts: Mapping[str, bool] | None) -> Iterator[Columns]:
        """The chunks, read by the reader of the file's format."""
        if rows and self._csv:
            yield from _cut(self._csv_blocks(names, texts), rows)
        elif rows and self._parquet:
            yield from _cut(_arrow("parquet").ParquetFile(self.path).iter_batches(rows, columns=list(names)), rows)
        else:
            whole = files.read_table(self.path)
            n = len(next(iter(whole.values())))
            for start in range(0, n, rows or max(n, 1)):
                yield {c: whole[c][start : start + (rows or n)] for c in names}

    def _csv_blocks(self, names: Sequence[str], texts: Mapping[str, bool] | None) -> Iterator[Any]:
        """Blocks of a file that is never read whole; a column is of one type in every block.

        `texts` says which columns are texts; where that is not known, the first block does.
        """
        csv, arrow, (header, delimiter) = _arrow("csv"), _arrow("lib"), files.header_of(self.path)
        reading = csv.ReadOptions(column_names=header, skip_rows=1, block_size=2**22)
        parsing = csv.ParseOptions(delimiter=delimiter)
        options: dict[str, Any] = {**files.AS_WRITTEN, "include_columns": names}
        coded = arrow.dictionary(arrow.int32(), arrow.string())
        first = csv.open_csv(self.path, reading, parsing, csv.ConvertOptions(**options)).schema
        types = {f.name: arrow.float64() for f in first if _arrow("types").is_integer(f.type)}
        types |= {f.name: coded for f in first if not _is_number(f.type)}
        declared = {name: is_text for name, is_text in (texts or {}).items() if name in names}
        types |= {name: coded if is_text else arrow.float64() for name, is_text in declared.items()}
        return csv.open_csv(self.path, reading, parsing, csv.ConvertOptions(**options, column_types=types))


def _is_number(kind: Any) -> bool:
    """Whether a column of this Arrow type holds numbers, or nothing at all."""
    types = _arrow("types")
    return types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)


def _cut(batches: Iterator[Any], rows: int) -> Iterator[Columns]:
    """Batches of at most so many rows."""
    for batch in batches:
        for start in range(0, len(batch), rows):
            piece = _arrow("lib").Table.from_batches([batch.slice(start, rows)])
            yield {c: files.from_arrow(piece[c]) for c in piece.column_names}


def _arrow(part: str) -> Any:
    """A module of pyarrow; the error says how to install it."""
    try:
        return import_module(f"pyarrow.{part}")
    except ImportError as error:
        raise BadData("reading in chunks, and parquet, need pyarrow: pip install 'unpooled[parquet]'") from error
