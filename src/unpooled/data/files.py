"""Tables from csv, csv.gz, parquet and npz files: a dict from column name to column; no pandas, no pickle.

Numbers come as int64 or float64 with NaN for missing, anything else as strings with None for missing.
pyarrow is used when installed (parquet needs it); without it csv goes through the standard library.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from unpooled.errors import BadData, DataNotFound

Columns = dict[str, np.ndarray]  # name -> (n,)

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")


def read(path: str | Path) -> Columns:
    """The columns of one file, by its suffix.

    >>> read("cleveland.csv")["age"]  # doctest: +SKIP
    """
    path = Path(path)
    if not path.is_file():
        raise DataNotFound(f"{path} is not a file: check the path")
    for suffix, reader in READERS.items():
        if path.name.lower().endswith(suffix):
            return _same_length(reader(path), path)
    raise BadData(f"{path.name} is none of {', '.join(READERS)}: convert it or give arrays instead")


def stem(path: Path) -> str:
    """The file's name without its known suffix: the name of its client."""
    suffix = next((s for s in READERS if path.name.lower().endswith(s)), path.suffix)
    return path.name[: len(path.name) - len(suffix)]


def _same_length(columns: Columns, path: Path) -> Columns:
    lengths = {len(c) for c in columns.values()}
    if len(lengths) > 1:
        raise BadData(f"{path.name} holds columns of {min(lengths)} to {max(lengths)} rows: make them equally long")
    return columns


# ---- csv ----


def read_csv(path: Path) -> Columns:
    header, delimiter = _header(path)
    try:
        return _csv_by_arrow(path, header, delimiter)
    except ImportError:
        return _csv_by_hand(path, header, delimiter)


def _open(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _header(path: Path) -> tuple[list[str], str]:
    """(column names, delimiter) from the first line; a file without usable names is refused."""
    with _open(path) as file:
        line = file.readline()
    if not line.strip():
        raise BadData(f"{path.name} is empty: its first line should hold the column names")
    delimiter = max(",;\t|", key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    if "" in names:
        where = names.index("") + 1
        raise BadData(f"{path.name}: column {where} has no name (an index column? save it with index=False)")
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise BadData(f"{path.name} has two columns called {twice!r}: rename one")
    if _all_numbers(names) and names != [str(i) for i in range(len(names))]:
        raise BadData(f"{path.name} starts with numbers: its first line should hold the column names")
    return names, delimiter


def _all_numbers(names: list[str]) -> bool:
    try:
        [float(n) for n in names]
    except ValueError:
        return False
    return True


def _csv_by_arrow(path: Path, header: list[str], delimiter: str) -> Columns:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    def table(types: dict[str, Any]) -> Any:
        return arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(column_names=header, skip_rows=1),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(
                null_values=MISSING, strings_can_be_null=True, quoted_strings_can_be_null=True, column_types=types
            ),
        )

    try:
        found = table({})
        # dates and truth values stay the text that they are in the file, as without pyarrow
        odd = {f.name: pa.string() for f in found.schema if not _plain(pa, f.type)}
        found = table(odd) if odd else found
    except pa.ArrowInvalid as error:
        raise BadData(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from error
    return {name: _from_arrow(found[name]) for name in header}


def _plain(pa: Any, kind: Any) -> bool:
    t = pa.types
    return t.is_integer(kind) or t.is_floating(kind) or t.is_string(kind) or t.is_null(kind)


def _csv_by_hand(path: Path, header: list[str], delimiter: str) -> Columns:
    with _open(path) as file:
        rows = csv.reader(file, delimiter=delimiter)
        next(rows)
        table = [row for row in rows if row]
    ragged = next((i for i, row in enumerate(table) if len(row) != len(header)), None)
    if ragged is not None:
        raise BadData(
            f"{path.name} cannot be read: row {ragged + 1} has {len(table[ragged])} fields, the header {len(header)}"
        )
    cells = zip(*table) if table else ((),) * len(header)
    return {name: parse(np.array(column, dtype=np.str_)) for name, column in zip(header, cells)}


def parse(text: np.ndarray) -> np.ndarray:
    """Text as int64, else float64 with NaN, else strings with None: the narrowest that holds every field."""
    text = np.char.strip(text)
    missing = np.isin(text, MISSING)
    if not missing.any():
        try:
            return text.astype(np.int64)
        except (ValueError, OverflowError):
            pass
    try:
        return np.where(missing, "nan", text).astype(np.float64)
    except ValueError:
        words = text.astype(object)
        words[missing] = None
        return words


# ---- parquet and npz ----


def read_parquet(path: Path) -> Columns:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise BadData(f"{path.name} needs pyarrow to be read: pip install 'unpooled[parquet]', or save csv") from error
    table = parquet.ParquetFile(path).read()
    return {name: _from_arrow(table[name]) for name in table.column_names}


def _from_arrow(column: Any) -> np.ndarray:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_dictionary(kind) or pa.types.is_temporal(kind):
        column = column.cast(pa.string())
    return column.to_numpy()


def read_npz(path: Path) -> Columns:
    """Columns from a 2-d `x` (or `X`; named by `columns`, else x0, x1, ...) and from every 1-d array beside it."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    x = arrays.pop("x", arrays.pop("X", None))
    if x is None or x.ndim != 2:
        raise BadData(f"{path.name} should hold a 2-d array called x: save it with np.savez(file, x=..., y=...)")
    names = arrays.pop("columns", np.array([f"x{j}" for j in range(x.shape[1])]))
    if len(names) != x.shape[1]:
        raise BadData(f"{path.name}: columns holds {len(names)} names for the {x.shape[1]} columns of x")
    return {str(n): column for n, column in zip(names, x.T)} | {k: a for k, a in arrays.items() if a.ndim == 1}


READERS: dict[str, Callable[[Path], Columns]] = {
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
}
