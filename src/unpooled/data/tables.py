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
from unpooled.data.frames import columns_of, is_frame, matrix, missing, pick
from unpooled.errors import BadData, BadParameter, DataNotFound, suggest


@dataclass
class Clients:
    """Clients and the names of their columns."""

    clients: list[Client]
    columns: list[str] | None = None  # (d,) names of the features, if they have names
    label: str | None = None


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


def clients_from(
    data: Any,
    y: Any = None,
    *,
    by: Any = None,
    sample_weight: Any = None,
    label: str | None = None,
    columns: Sequence[str] | None = None,
) -> Clients:
    """Clients from a dict or list of arrays, (X, y) pairs, frames or files, a folder or glob, or one table with `by=`.

    `y` and `sample_weight` are one array for the rows, a dict or list of one for each client, or a column's name;
    `label` is the same as a column's name for `y`. `columns` are the features to use; by default all other columns.

    >>> len(clients_from({"a": [[1.0, 2.0]], "b": [[3.0, 5.0]]}).clients)
    2
    """
    names = None
    if isinstance(data, Clients):
        return data
    if isinstance(data, Collection):
        data, names, y = _chosen(data, columns), columns or data.columns, data.y if y is None else y
        columns = None
    roles = _roles(y, label, sample_weight, by, columns)
    y, w, groups = (None if isinstance(v, str) else v for v in (y, sample_weight, by))
    data = _files(data) if _is_path(data) else data
    if not _is_many(data):
        parts = _from_one(data, y, w, groups, roles)
    elif by is None:
        parts = _from_many(data, y, w, roles)
    else:
        raise BadParameter("by= splits one table into clients, but the data is split already: leave by= out")
    parts = [p if names is None else p._replace(columns=list(names)) for p in checks.aligned(parts)]
    checks.check(parts)
    clients = [Client(p.name, p.x, p.y, None if p.w is None else like(p.w, p.x)) for p in parts]
    return Clients(clients, parts[0].columns, roles.label)


def _roles(y: Any, label: str | None, sample_weight: Any, by: Any, columns: Sequence[str] | None) -> Roles:
    if label is not None and y is not None and not (isinstance(y, str) and y == label):
        raise BadParameter(f"both y= and label={label!r} say what the labels are: give one of them")
    y, weight, groups = (v if isinstance(v, str) else None for v in (y if label is None else label, sample_weight, by))
    return Roles(y, weight, groups, None if columns is None else tuple(columns))


def _chosen(data: Collection, columns: Sequence[str] | None) -> dict[str, Array]:
    if columns is None:
        return data.clients
    for c in columns:
        if c not in data.columns:
            raise BadData(f"columns={c!r} is not a column of the data: {suggest(c, data.columns)}")
    return {name: x[:, [data.columns.index(c) for c in columns]] for name, x in data.clients.items()}


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


def _from_many(data: Any, y: Any, w: Any, roles: Roles) -> list[Part]:
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
        parts.append(_part(name, x, own_y, own_w, roles, where, array=_array))
    return parts


def numbered(n: int) -> list[str]:
    """client-00, client-01, ...: names in sorted order."""
    width = len(str(n - 1))
    return [f"client-{i:0{width}d}" for i in range(n)]


def _names(keys: Iterable[Any]) -> list[str]:
    return [str(int(k)) if isinstance(k, float | np.floating) and k.is_integer() else str(k) for k in keys]


def _twice(names: Sequence[str]) -> str:
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


def _from_one(data: Any, y: Any, w: Any, by: Any, roles: Roles) -> list[Part]:
    name = files.stem(data) if isinstance(data, Path) else "client-0"
    whole = _part(name, data, y, w, roles, "the data", array=_single_array)
    groups = whole.groups if roles.by else by
    return [whole] if groups is None else _split(whole, groups)


def _single_array(data: Any, where: str) -> Array:
    """A plain array, checked by scikit-learn and with its messages."""
    if is_torch(data):
        return _tensor(data, where)
    from sklearn.utils.validation import check_array

    return check_array(data, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", input_name="X")


def _split(whole: Part, groups: Any) -> list[Part]:
    """One part per client: rows sorted once, then cut into views."""
    n = whole.x.shape[0]
    labels = to_numpy(groups) if is_torch(groups) else np.asarray(groups)
    if labels.shape != (n,):
        raise BadData(f"by= has {labels.size} labels for {n} rows: give one for each row")
    if (gaps := missing(labels)).any():
        raise BadData(f"by= has no value in row {int(gaps.argmax())}: every row needs a client")
    checks.check_rows(whole)
    values, index = np.unique(labels.astype(np.str_) if labels.dtype == object else labels, return_inverse=True)
    order = np.argsort(index, kind="stable")
    ends = np.cumsum(np.bincount(index)).tolist()
    pieces = zip(_names(values), *(_cut(a, order, ends) for a in (whole.x, whole.y, whole.w)))
    return [Part(name, x, y, w, whole.columns, _client(name)) for name, x, y, w in pieces]


def _cut(a: Array | None, order: np.ndarray, ends: list[int]) -> list[Array | None]:
    if a is None:
        return [None] * len(ends)
    if (order[1:] < order[:-1]).any():  # sorted rows are not copied
        a = a[namespace(a).as_tensor(order, device=a.device)] if is_torch(a) else a[order]
    return [a[start:end] for start, end in zip([0, *ends], ends)]


# ---- one client's rows ----


def _client(name: str) -> str:
    return f"client {name!r}"


def _part(name: str, data: Any, y: Any, w: Any, roles: Roles, where: str, array: Callable[..., Array]) -> Part:
    if hasattr(data, "collect"):
        raise BadData(f"{where} is a lazy frame: call .collect() on it first")
    if not (_is_path(data) or is_frame(data)):
        _refuse_roles(roles, where)
        return Part(name, array(data, where), _vector(y), _vector(w), where=where)
    columns, named = (files.read(data), True) if _is_path(data) else columns_of(data, where)
    if _is_path(data) and Path(data).suffix.lower() == ".npz" and roles.label is None:
        y = columns.pop("y", y)  # y of an npz file is its labels
    y, w, groups = (
        pick(columns, column, role, where) if column else given
        for (role, column), given in zip(roles._asdict().items(), (y, w, None))
    )
    if roles.columns is not None:
        columns = {c: pick(columns, c, "columns", where) for c in roles.columns}
    names = list(columns) if named else None
    return Part(name, matrix(columns, where), _vector(y), _vector(w), names, where, groups)


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
    if x.dtype.kind == "c":
        raise BadData(f"{where} holds complex numbers: give their real and imaginary parts as columns")
    return x


def _tensor(data: Any, where: str) -> Array:
    torch = namespace(data)
    if data.is_sparse:
        raise BadData(f"{where} is a sparse tensor: call .to_dense() on it first")
    if data.is_complex():
        raise BadData(f"{where} holds complex numbers: give their real and imaginary parts as columns")
    kept = data.dtype in (torch.float32, torch.float64)
    return _two_axes(data if kept else data.to(torch.float64), where)


def _two_axes(x: Array, where: str) -> Array:
    if x.ndim != 2 or x.shape[1] == 0:
        hint = "flatten all but the first axis" if x.ndim > 2 else "give rows by columns"
        raise BadData(f"{where} should be a 2-d array with at least one column, got shape {tuple(x.shape)}: {hint}")
    return x


def _vector(values: Any) -> Array | None:
    return values if values is None or is_torch(values) else np.asarray(values)


def _is_sparse(data: Any) -> bool:
    return hasattr(data, "tocsr")


# ---- files ----


def _is_path(data: Any) -> bool:
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
