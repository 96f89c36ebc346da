"""Tables from csv, csv.gz, parquet and npz files as dicts of columns; no pandas, no pickle.

Numbers are int64 or float64 with NaN for missing values, anything else is texts with None for missing values.
pyarrow is used when installed (parquet needs it); without it csv goes through the standard library.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import glob, has_magic
from itertools import islice
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np

from unpooled.data.schema.texts import Texts
from unpooled.errors import BadData, DataNotFound, UnpooledError

Columns = dict[str, Any]  # name -> (n,): an array, or Texts

UNREADABLE = (OSError, ValueError, EOFError, NotImplementedError, BadZipFile, zlib.error, csv.Error)

MISSING: tuple[str, ...] = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
AS_WRITTEN: dict[str, Any] = {  # options of pyarrow's csv reader: truth values and times stay texts
    "null_values": MISSING,
    "strings_can_be_null": True,
    "quoted_strings_can_be_null": True,
    "true_values": [],
    "false_values": [],
    "timestamp_parsers": ["none"],
    "auto_dict_max_cardinality": 1000,
}


def read(path: str | Path) -> dict[str, np.ndarray]:
    """The columns of one file as arrays; the suffix decides the format.

    >>> read("cleveland.csv")["age"]  # doctest: +SKIP
    """
    return {name: _as_array(column) for name, column in read_table(path).items()}


def _as_array(column: Any) -> np.ndarray:
    """A column as an array of numbers or of texts with None for missing values."""
    values = np.asarray(column)
    if values.dtype.kind != "M":
        return values
    texts = np.datetime_as_string(values).astype(object)
    texts[np.isnat(values)] = None
    return texts


def read_table(path: str | Path) -> Columns:
    """The columns of one file: arrays, and `Texts` for texts, which takes a fraction of the memory."""
    path = Path(path)
    if not path.is_file():
        raise DataNotFound(f"{path} is not a file: check the path")
    reader = next((r for suffix, r in READERS.items() if path.name.lower().endswith(suffix)), None)
    if reader is None:
        raise BadData(f"{path.name} is none of {', '.join(READERS)}: convert it or give arrays instead")
    with readable(path):
        return _same_length(reader(path), path)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say in one sentence that a file cannot be read, whatever the reader's error is."""
    try:
        yield
    except UnpooledError:
        raise
    except UnicodeDecodeError as error:
        raise BadData(f"{path.name} is not text in UTF-8: save it as UTF-8 (spreadsheets call it CSV UTF-8)") from error
    except UNREADABLE as error:
        raise BadData(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from error


def stem(path: Path) -> str:
    """The file's name without its known suffix: the name of its client."""
    suffix = next((s for s in READERS if path.name.lower().endswith(s)), path.suffix)
    return path.name[: len(path.name) - len(suffix)]


def _same_length(columns: Columns, path: Path) -> Columns:
    """The columns as they are; refused when they are not equally long."""
    lengths = {len(c) for c in columns.values()}
    if len(lengths) > 1:
        raise BadData(f"{path.name} holds columns of {min(lengths)} to {max(lengths)} rows: make them equally long")
    return columns


# ---- csv ----


def read_csv(path: Path) -> Columns:
    """Read a csv file with pyarrow where it is installed, else with the standard library: both give the same."""
    header, delimiter, lines = _header(path)
    try:
        return _csv_with_arrow(path, header, delimiter, lines)
    except (ImportError, *UNREADABLE):  # the standard library's reader then names the line
        return _csv_without_arrow(path, header, delimiter)


def _open(path: Path) -> IO[str]:
    """Open a text file, unpacking .gz and leaving out a byte order mark."""
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def header_of(path: Path) -> tuple[list[str], str]:
    """(column names, delimiter) from the first line; a file without usable names is refused."""
    return _header(path)[:2]


def _header(path: Path) -> tuple[list[str], str, int]:
    """`header_of`, and how many lines the names take."""
    with _open(path) as file:
        line = file.readline()
    if not line.strip():
        raise BadData(f"{path.name} is empty: its first line should hold the column names")
    delimiter = max(",;\t|", key=line.count)
    with _open(path) as file:  # a name in quotes may go on in the next line
        rows = csv.reader(file, delimiter=delimiter)
        names = [" ".join(map(str.strip, name.splitlines())).strip() for name in next(rows)]
    if "" in names:
        raise BadData(_without_name(path, names, delimiter))
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise BadData(f"{path.name} has two columns called {twice!r}: rename one")
    if _all_numbers(names) and names != [str(i) for i in range(len(names))]:
        raise BadData(f"{path.name} starts with numbers: its first line should hold the column names")
    return names, delimiter, rows.line_num


def _without_name(path: Path, names: list[str], delimiter: str) -> str:
    """The sentence about the first column without a name."""
    where = names.index("") + 1
    if names[0] == "sep=":
        return f"{path.name} starts with the line sep={delimiter}, which only Excel reads: delete it"
    if where == len(names):
        return f"{path.name}: column {where} has no name (does every line end with {delimiter!r}? delete the last one)"
    return f"{path.name}: column {where} has no name (an index column? save it with index=False)"


def _all_numbers(names: list[str]) -> bool:
    """Whether a header consists of numbers, which means that the file has none."""
    return all(map(is_number, names))


def is_number(text: str) -> bool:
    """Whether a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_with_arrow(path: Path, header: list[str], delimiter: str, lines: int) -> Columns:
    """Read a csv file with pyarrow below the lines of its header: texts as codes and levels, times as texts."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    def table(types: dict[str, Any]) -> Any:
        return arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(column_names=header, skip_rows=lines),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(**AS_WRITTEN, auto_dict_encode=True, column_types=types),
        )

    found = table({})
    # times stay texts, as without pyarrow
    odd = {f.name: pa.dictionary(pa.int32(), pa.string()) for f in found.schema if pa.types.is_time(f.type)}
    found = (table(odd) if odd else found).unify_dictionaries()
    return {name: from_arrow(found[name]) for name in header}


def _csv_without_arrow(path: Path, header: list[str], delimiter: str) -> Columns:
    """Read a csv file with the standard library, in blocks of rows."""
    fields: list[list[str]] = [[] for _ in header]
    with _open(path) as file:
        rows = csv.reader(file, delimiter=delimiter)
        next(rows)
        while block := list(islice(rows, 10_000)):  # in blocks, to free memory early
            block = [row for row in block if row]
            if any(len(row) != len(header) for row in block):
                raise ValueError(_uneven(path, header, delimiter))
            for column, more in zip(fields, zip(*block)):
                column.extend(more)
    return {name: parse(column) for name, column in zip(header, fields)}


def _uneven(path: Path, header: list[str], delimiter: str) -> str:
    """The sentence about the first line whose number of cells is not that of the header."""
    with _open(path) as file:
        rows = csv.reader(file, delimiter=delimiter)
        for row in rows:
            if row and len(row) != len(header):
                break
    more = "more" if len(row) > len(header) else "fewer"
    return f"line {rows.line_num} has {len(row)} cells, {more} than the {len(header)} columns of the first line"


def parse(fields: list[str]) -> np.ndarray:
    """Fields as int64, else float64 with NaN, else strings with None: the first that can hold every field."""
    kinds = ((int, np.int64), (float, np.float64), (_float, np.float64))
    for convert, dtype in kinds if "_" not in "".join(fields) else ():  # Python would read 1_000 as a number
        try:
            return np.fromiter(map(convert, fields), dtype, len(fields))  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            continue
    return np.array([None if f in MISSING else f for f in fields], dtype=object)


def _float(field: str) -> float:
    """A field as a number, NaN where it is empty or another way to write missing."""
    return np.nan if field in MISSING else float(field)


# ---- parquet and npz ----


def read_parquet(path: Path) -> Columns:
    """Read a parquet file; needs pyarrow."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise BadData(f"{path.name} needs pyarrow to be read: pip install 'unpooled[parquet]', or save csv") from error
    table = parquet.ParquetFile(path).read()
    return {name: from_arrow(table[name]) for name in table.column_names}


def from_arrow(column: Any) -> Any:
    """One column of a pyarrow table as a NumPy array, or as Texts."""
    import pyarrow as pa

    kind, types = column.type, pa.types
    if types.is_decimal(kind) or types.is_null(kind):
        return column.cast(pa.float64()).to_numpy()
    if types.is_boolean(kind):
        return column.to_numpy() if not column.null_count else column.cast(pa.float64()).to_numpy()
    if types.is_date(kind):
        return column.cast(pa.date32()).to_numpy().astype("datetime64[D]")
    if types.is_timestamp(kind):
        return column.to_numpy().astype("datetime64[us]")
    if types.is_time(kind) or types.is_string(kind) or types.is_large_string(kind):
        column = column.cast(pa.string()).dictionary_encode()
    if types.is_dictionary(column.type):
        return _texts(column)
    return column.to_numpy()


def _texts(column: Any) -> Texts:
    """A column of dictionary type as Texts; spaces around a text do not count."""
    import pyarrow as pa

    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no rows, or too many for one chunk
        whole = whole.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return Texts(codes, [str(v) for v in whole.dictionary.to_pylist()])


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


def listed(path: Any) -> Any:
    """The one file at `path`, or {client: file} for a folder or glob."""
    text = str(path)
    if not has_magic(text) and not Path(text).is_dir():
        return Path(text)  # a file; the reader reports a missing one
    paths = Path(text).iterdir() if Path(text).is_dir() else map(Path, glob(text, recursive=True))
    known = sorted(p for p in paths if p.is_file() and p.name.lower().endswith(tuple(READERS)))
    if not known:
        raise DataNotFound(f"nothing in {text} ends with {', '.join(READERS)}: check the path or the glob")
    if len(known) == 1:
        return known[0]
    names = [stem(p) for p in known]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadData(f"two files of {text} are called {twice!r}, which names the client: rename one")
    return dict(zip(names, known))
