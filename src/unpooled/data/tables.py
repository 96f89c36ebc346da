"""Clients from arrays, (X, y) pairs, frames, files, or one table with the client of each row.

One table is sorted by client once and cut into views: a single copy, whatever the number of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, like, namespace, to_numpy
from unpooled.client import Client
from unpooled.data import checks, files
from unpooled.data.checks import Part
from unpooled.data.columns import (
    Table,
    labels_of,
    names_of,
    read_columns,
    refuse_unknown,
    renamed,
    schema_of,
    table_matrix,
)
from unpooled.data.frames import columns_of, is_frame, missing, pick
from unpooled.data.schema import Column, Own, Schema, as_texts, read_own
from unpooled.errors import BadData, BadParameter, DataNotFound, UnpooledError, suggest


@dataclass
class Clients:
    """Clients and the names of their columns."""

    clients: list[Client]
    columns: list[str] | None = None  # (d,) names of the features, if they have names
    label: str | None = None
    schema: Schema | None = None  # kinds and levels of the features, if they have names


class Collection(NamedTuple):
    """Arrays by client and the names of their columns, as the built-in data sets are given."""

    clients: dict[str, Array]  # each (n, d), NaN is missing
    columns: list[str]  # (d,)
    y: dict[str, Array] | None = None  # each (n,)


class Roles(NamedTuple):
    """Columns with a role other than feature, and the columns to use as features (None: all others)."""

    label: str | None = None
    sample_weight: str | None = None
    by: str | None = None
    columns: tuple[str, ...] | None = None


class Kinds(NamedTuple):
    """What is declared of columns: a schema, whether clients may lack some, and how each client writes them."""

    schema: Schema | None = None
    union: bool = False
    sites: Mapping[str, Mapping[str, Own]] = {}

    def of(self, name: str | None) -> Column | None:
        """The declared column of that name."""
        return self.schema[name] if name is not None and self.schema is not None and name in self.schema else None


def clients_from(
    data: Any,
    y: Any = None,
    *,
    by: Any = None,
    sample_weight: Any = None,
    label: str | None = None,
    columns: Any = None,
    schema: Any = None,
    sites: Mapping[str, Mapping[str, Any]] | None = None,
) -> Clients:
    """Clients from a dict or list of arrays, (X, y) pairs, frames or files, a folder or glob, or one table with `by=`.

    `y` and `sample_weight` are one array for the rows, a dict or list of one for each client, or a column's name;
    `label` is the same as a column's name for `y`. `columns` are the features to use, by default all other columns, or
    "union" where clients may lack some; `schema` their kinds; `sites` how single clients write them.

    >>> len(clients_from({"a": [[1.0, 2.0]], "b": [[3.0, 5.0]]}).clients)
    2
    """
    if isinstance(data, Clients):
        return data
    columns, declared, union = read_columns(columns, schema)
    if isinstance(data, Collection):
        data, y = _frames_of(data), data.y if y is None else y
    roles = _roles(y, label, sample_weight, by, columns)
    kinds = Kinds(declared, union, {name: read_own(own, f"sites.{name}") for name, own in (sites or {}).items()})
    y, w, groups = (None if isinstance(v, str) else v for v in (y, sample_weight, by))
    data = _files(data) if _is_path(data) else data
    if not _is_many(data):
        parts, found = _from_one(data, y, w, groups, roles, kinds)
    elif by is None:
        parts, found = _encoded(_from_many(data, y, w, roles, kinds), kinds, roles)
        parts = checks.labelled(parts)
    else:
        raise BadParameter("by= splits one table into clients, but the data is split already: leave by= out")
    checks.check(parts)
    clients = [Client(p.name, p.x, p.y, None if p.w is None else like(p.w, p.x)) for p in parts]
    return Clients(clients, parts[0].columns, roles.label, None if parts[0].columns is None else found)


def _encoded(parts: list[Part], kinds: Kinds, roles: Roles) -> tuple[list[Part], Schema | None]:
    """The parts with their columns as numbers, in the order of the first, and the schema that all agree on."""
    checks.all_or_none_named(parts)
    if parts[0].table is None:
        return parts, None
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


def _frames_of(data: Collection) -> dict[str, Any]:
    """A collection's clients as arrays that know their column names."""
    return {name: _NamedArray(x, list(data.columns)) for name, x in data.clients.items()}


@dataclass
class _NamedArray:
    """An array with the names of its columns."""

    x: Array
    columns: list[str]


def _roles(y: Any, label: str | None, sample_weight: Any, by: Any, columns: tuple[str, ...] | None) -> Roles:
    """Which columns are labels, weights and clients, where they are given by name."""
    if label is not None and y is not None and not (isinstance(y, str) and y == label):
        raise BadParameter(f"both y= and label={label!r} say what the labels are: give one of them")
    y, weight, groups = (v if isinstance(v, str) else None for v in (y if label is None else label, sample_weight, by))
    return Roles(y, weight, groups, columns)


# ---- many clients ----


def _is_many(data: Any) -> bool:
    """Whether `data` holds clients: a mapping, or a sequence of tables rather than of rows."""
    if isinstance(data, Mapping) or not isinstance(data, list | tuple) or not data:
        return isinstance(data, Mapping) and not _is_sparse(data)  # SciPy's dok_matrix is a dict too
    first = data[0]
    if is_torch(first) or isinstance(first, np.ndarray):
        return first.ndim >= 2
    nested = isinstance(first, list) and bool(first) and isinstance(first[0], list | np.ndarray)
    pair = isinstance(first, tuple) and bool(first) and (is_frame(first[0]) or np.ndim(first[0]) == 2)
    return nested or pair or is_frame(first) or _is_path(first) or _is_sparse(first)


def _from_many(data: Any, y: Any, w: Any, roles: Roles, kinds: Kinds) -> list[Part]:
    """One part per entry of a mapping or a sequence."""
    if not data:
        raise BadData("there are no clients: give at least one")
    keys = list(data) if isinstance(data, Mapping) else range(len(data))
    names = _names(keys) if isinstance(data, Mapping) else numbered(len(data))
    if len(set(names)) < len(names):
        raise BadData(f"two clients are called {_twice(names)!r}: give each a name of its own")
    ys, ws = _per_client(y, names, "y"), _per_client(w, names, "sample_weight")
    parts = []
    for name, key in zip(names, keys):
        where = _client(name)
        x, own_y, own_w = _unpair(data[key], ys.get(name), ws.get(name), where)
        parts.append(_part(name, x, own_y, own_w, roles, where, array=_array, kinds=kinds))
    _check_sites(kinds, names)
    return parts


def _check_sites(kinds: Kinds, names: Sequence[str]) -> None:
    """Refuse sites= for a client that does not exist."""
    for site in kinds.sites:
        if site not in names:
            raise BadParameter(f"sites= describes {site!r}, which is not a client: {suggest(site, names)}")


def numbered(n: int) -> list[str]:
    """client-00, client-01, ...: names in sorted order."""
    width = len(str(n - 1))
    return [f"client-{i:0{width}d}" for i in range(n)]


def _names(keys: Iterable[Any]) -> list[str]:
    """Clients' names as strings; 3.0 becomes "3"."""
    return [str(int(k)) if isinstance(k, float | np.floating) and k.is_integer() else str(k) for k in keys]


def _twice(names: Sequence[str]) -> str:
    """The first name that occurs a second time."""
    seen: set[str] = set()
    return next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]


def _per_client(values: Any, names: list[str], role: str) -> dict[str, Any]:
    """`y` or `sample_weight` by client name."""
    if values is None:
        return {}
    if isinstance(values, Mapping):
        values = {str(k): v for k, v in values.items()}
        for name in names:
            if name not in values:
                raise BadData(f"{role} has nothing for client {name!r}: {suggest(name, values)}")
        return values
    if not isinstance(values, list | tuple) or len(values) != len(names):
        raise BadData(f"{role} should be a dict or list with one array for each of the {len(names)} clients")
    return dict(zip(names, values))


# ---- one table, possibly to be split ----


def _from_one(data: Any, y: Any, w: Any, by: Any, roles: Roles, kinds: Kinds) -> tuple[list[Part], Schema | None]:
    """One table as one client, or as many clients by the column or array `by`."""
    name = files.stem(data) if isinstance(data, Path) else "client-0"
    part = _part(name, data, y, w, roles, "the data", array=_single_array, kinds=kinds)
    _check_sites(kinds, [name])
    (whole,), found = _encoded([part], kinds, roles)
    if by is not None and not roles.by:
        whole = whole._replace(groups=_groups(by, whole))
    (whole,) = checks.labelled([whole])
    return ([whole] if whole.groups is None else _split(whole, whole.groups)), found


def _groups(by: Any, whole: Part) -> np.ndarray:
    """The client of each row, from an array with one entry per row."""
    labels = to_numpy(by) if is_torch(by) else np.asarray(by)
    if labels.shape != (whole.x.shape[0],):
        raise BadData(f"by= has {labels.size} labels for {whole.x.shape[0]} rows: give one for each row")
    return labels


def _single_array(data: Any, where: str) -> Array:
    """A plain array, checked by scikit-learn and with its messages."""
    if is_torch(data):
        return _tensor(data, where)
    from sklearn.utils.validation import check_array

    return check_array(data, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", input_name="X")


def _split(whole: Part, groups: Any) -> list[Part]:
    """One part per client: rows sorted once, then cut into views."""
    labels = np.asarray(groups)
    if (gaps := missing(labels)).any():
        raise BadData(f"by= has no value in row {int(gaps.argmax())}: every row needs a client")
    checks.check_rows(whole)
    values, index = np.unique(labels.astype(np.str_) if labels.dtype == object else labels, return_inverse=True)
    order = np.argsort(index, kind="stable")
    ends = np.cumsum(np.bincount(index)).tolist()
    pieces = zip(_names(values), *(_cut(a, order, ends) for a in (whole.x, whole.y, whole.w)))
    return [Part(name, x, y, w, whole.columns, _client(name)) for name, x, y, w in pieces]


def _cut(a: Array | None, order: np.ndarray, ends: list[int]) -> list[Array | None]:
    """The array in consecutive pieces that end at `ends`, after rows are put in `order`."""
    if a is None:
        return [None] * len(ends)
    if (order[1:] < order[:-1]).any():  # sorted rows are not copied
        a = a[namespace(a).as_tensor(order, device=a.device)] if is_torch(a) else a[order]
    return [a[start:end] for start, end in zip([0, *ends], ends)]


# ---- one client's rows ----


def _client(name: str) -> str:
    """How a client is called in a sentence."""
    return f"client {name!r}"


def _part(
    name: str, data: Any, y: Any, w: Any, roles: Roles, where: str, array: Callable[..., Array], kinds: Kinds
) -> Part:
    """One client's rows, labels and weights from an array, a frame or a file."""
    if hasattr(data, "collect"):
        raise BadData(f"{where} is a lazy frame: call .collect() on it first")
    own = kinds.sites.get(name, {})
    if not (_is_path(data) or is_frame(data) or isinstance(data, _NamedArray)):
        _refuse_roles(roles, where)
        if kinds.schema is not None or own:
            raise BadData(f"columns= declares kinds, but {where} is an array without names: give a frame or a file")
        return Part(name, array(data, where), _vector(y), _vector(w), where=where)
    if isinstance(data, _NamedArray) and kinds == Kinds() and roles.columns is None:
        return Part(name, array(data.x, where), _vector(y), _vector(w), data.columns, where)
    columns, named = _columns_of(data, where)
    columns = renamed(columns, own, where)
    if _is_path(data) and Path(data).suffix.lower() == ".npz" and roles.label is None:
        y = columns.pop("y", y)  # y of an npz file is its labels
    if roles.label in own and own[roles.label].lacks:
        raise BadData(f"{where} lacks the labels {roles.label!r}, as its columns say: leave it out of this fit")
    y, w, groups = (
        pick(columns, column, role, where) if column else given
        for (role, column), given in zip(roles._asdict().items(), (y, w, None))
    )
    if roles.label is not None:
        y = labels_of(kinds.of(roles.label), y, own.get(roles.label, Own()), where)
    if roles.columns is not None:
        columns = {c: columns.pop(c) for c in roles.columns if _chosen(columns, c, where, kinds.union, own)}
    elif kinds.schema is not None:
        columns = {c: v for c, v in columns.items() if c not in kinds.schema or kinds.schema[c].used}
    rows = len(next(iter(columns.values()))) if columns else 0
    table = Table(columns, own, where)
    x = np.empty((rows, 0))  # until the columns are encoded
    return Part(name, x, _vector(y), _vector(w), list(columns) if named else None, where, groups, table)


def _columns_of(data: Any, where: str) -> tuple[files.Columns, bool]:
    """(columns by name, whether they have names)."""
    if isinstance(data, _NamedArray):
        return {c: to_numpy(data.x[:, j]) for j, c in enumerate(data.columns)}, True
    return (files.read_table(data), True) if _is_path(data) else columns_of(data, where)


def _chosen(columns: Mapping[str, Any], name: str, where: str, union: bool, own: Mapping[str, Own]) -> bool:
    """Whether a chosen column is there; one that the client lacks must be known to be lacking."""
    if name not in columns and not (union or (name in own and own[name].lacks)):
        raise BadData(f"columns={name!r} is not a column of {where}: {suggest(name, columns)}")
    return name in columns


def _unpair(data: Any, y: Any, w: Any, where: str) -> tuple[Any, Any, Any]:
    """(X, y, w) of a client given as an array or as a tuple."""
    if not isinstance(data, tuple):
        return data, y, w
    if len(data) not in (2, 3):
        raise BadData(f"{where} is a tuple of {len(data)}: give (X, y) or (X, y, sample_weight)")
    if y is not None or (w is not None and len(data) == 3):
        raise BadData(f"{where} has labels or weights in its pair and again in y= or sample_weight=: give one of them")
    return (*data, w)[:3]


def _refuse_roles(roles: Roles, where: str) -> None:
    """Refuse names of columns for an array, which has none."""
    for role, name in roles._asdict().items():
        if name is not None:
            raise BadData(f"{role}={name!r} names a column, but {where} is an array without names: give the values")


def _array(data: Any, where: str) -> Array:
    """(n, d) float64 or float32."""
    if is_torch(data):
        return _tensor(data, where)
    if _is_sparse(data):
        raise BadData(f"{where} is a sparse matrix: call .toarray() on it first")
    try:
        x = np.asarray(data)
        x = x if x.dtype in (np.float64, np.float32) else _real(x, where).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise BadData(f"{where} holds values that are not numbers: {error}") from error
    return _two_axes(x, where)


def _real(x: np.ndarray, where: str) -> np.ndarray:
    """The array; refused when it holds complex numbers."""
    if x.dtype.kind == "c":
        raise BadData(f"{where} holds complex numbers: give their real and imaginary parts as columns")
    return x


def _tensor(data: Any, where: str) -> Array:
    """A torch tensor as 32 or 64 bit floats with two axes; it stays on its device."""
    torch = namespace(data)
    if data.is_sparse:
        raise BadData(f"{where} is a sparse tensor: call .to_dense() on it first")
    if data.is_complex():
        raise BadData(f"{where} holds complex numbers: give their real and imaginary parts as columns")
    kept = data.dtype in (torch.float32, torch.float64)
    return _two_axes(data if kept else data.to(torch.float64), where)


def _two_axes(x: Array, where: str) -> Array:
    """The array; refused unless it has rows and columns."""
    if x.ndim != 2 or x.shape[1] == 0:
        hint = "flatten all but the first axis" if x.ndim > 2 else "give rows by columns"
        raise BadData(f"{where} should be a 2-d array with at least one column, got shape {tuple(x.shape)}: {hint}")
    return x


def _vector(values: Any) -> Array | None:
    """Labels or weights as an array; tensors stay tensors."""
    return values if values is None or is_torch(values) else np.asarray(values)


def _is_sparse(data: Any) -> bool:
    """Whether the data is a sparse matrix of SciPy."""
    return hasattr(data, "tocsr")


# ---- files ----


def _is_path(data: Any) -> bool:
    """Whether the data is given as the path of a file."""
    return isinstance(data, str | PathLike)


def _files(path: Any) -> Any:
    """The one file at `path`, or {client: file} for a folder or glob."""
    text = str(path)
    if not has_magic(text) and not Path(text).is_dir():
        return Path(text)  # a file; the reader reports a missing one
    paths = Path(text).iterdir() if Path(text).is_dir() else map(Path, glob(text, recursive=True))
    known = sorted(p for p in paths if p.is_file() and p.name.lower().endswith(tuple(files.READERS)))
    if not known:
        raise DataNotFound(f"nothing in {text} ends with {', '.join(files.READERS)}: check the path or the glob")
    if len(known) == 1:
        return known[0]
    names = [files.stem(p) for p in known]
    if len(set(names)) < len(names):
        raise BadData(f"two files of {text} are called {_twice(names)!r}, which names the client: rename one")
    return dict(zip(names, known))


# ---- tables as they are, for a check ----


def raw_tables(
    data: Any, *, by: str | None = None, sites: Mapping[str, Mapping[str, Own]] | None = None
) -> dict[str, Any]:
    """client -> its columns by the federation's names, or the sentence that says why they cannot be read."""
    data = _files(data) if _is_path(data) else data
    if isinstance(data, Collection):
        data = _frames_of(data)
    if not _is_many(data):
        name = files.stem(data) if isinstance(data, Path) else "client-0"
        whole = _raw(data, {}, "the data")
        return {name: whole} if by is None or isinstance(whole, str) else _raw_by(whole, by)
    keys = list(data) if isinstance(data, Mapping) else range(len(data))
    names = _names(keys) if isinstance(data, Mapping) else numbered(len(data))
    return {name: _raw(data[key], (sites or {}).get(name, {}), _client(name)) for name, key in zip(names, keys)}


def _raw(data: Any, own: Mapping[str, Own], where: str) -> Any:
    """Columns of one client as they are, for a check; where they cannot be read, the sentence that says why."""
    data = data[0] if isinstance(data, tuple) else data
    if not (_is_path(data) or is_frame(data) or isinstance(data, _NamedArray)):
        raise BadData(f"{where} is an array without names: a check compares columns by name, give frames or files")
    try:
        return renamed(_columns_of(data, where)[0], own, where)
    except UnpooledError as error:
        return str(error)


def _raw_by(columns: files.Columns, by: str) -> dict[str, Any]:
    """Columns as they are, split into clients by the column `by`."""
    groups = as_texts(pick(columns, by, "by", "the data"))
    rows = {name: groups.codes == i for i, name in enumerate(groups.levels)}
    cut = lambda values, mine: values[mine] if hasattr(values, "codes") else np.asarray(values)[mine]  # noqa: E731
    return {name: {c: cut(v, mine) for c, v in columns.items()} for name, mine in sorted(rows.items())}
