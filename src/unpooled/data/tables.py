"""Clients from arrays, (X, y) pairs, frames, files, or one table with the client of each row.

One table is sorted by client once and cut into views: a single copy, whatever the number of clients. Columns with names, of frames
and files, are read and encoded by `columns`, which is imported for them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_frame, is_torch, like, missing, namespace, to_numpy
from unpooled.client import Client
from unpooled.data import checks
from unpooled.data.checks import Part, is_sparse
from unpooled.errors import BadData, BadParameter, suggest

if TYPE_CHECKING:
    from unpooled.data.schema import Column, Own, Schema

SPLIT_ALREADY = "by= splits one table into clients, but the data is split already: leave by= out"
NO_CLIENTS = "there are no clients: give at least one"


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
    columns, kinds = _read_kinds(columns, schema, sites)
    if isinstance(data, Collection):
        y = data.y if y is None else y
        data = named_arrays(data)
    roles = _roles(y, label, sample_weight, by, columns)
    y, w, groups = (None if isinstance(v, str) else v for v in (y, sample_weight, by))
    data = listed(data)
    if not is_many(data):
        parts, found = _from_one(data, y, w, groups, roles, kinds)
    elif by is None:
        parts, found = _encoded(_from_many(data, y, w, roles, kinds), kinds, roles)
        parts = checks.labelled(parts)
    else:
        raise BadParameter(SPLIT_ALREADY)
    checks.check(parts)
    clients = [Client(p.name, p.x, p.y, None if p.w is None else like(p.w, p.x)) for p in parts]
    return Clients(clients, parts[0].columns, roles.label, None if parts[0].columns is None else found)


def _read_kinds(columns: Any, schema: Any, sites: Any) -> tuple[tuple[str, ...] | None, Kinds]:
    """(columns to use or None for all, what is declared of columns)."""
    if columns is None and schema is None and not sites:
        return None, Kinds()
    from unpooled.data.columns import read_kinds

    return read_kinds(columns, schema, sites)


def _encoded(parts: list[Part], kinds: Kinds, roles: Roles) -> tuple[list[Part], Schema | None]:
    """The parts with columns as numbers, and the schema that all agree on; arrays are numbers already and have none."""
    checks.all_or_none_named(parts)
    if parts[0].table is None:
        return parts, None
    from unpooled.data.columns import encoded

    return encoded(parts, kinds, roles)


def named_arrays(data: Collection) -> dict[str, Any]:
    """A collection's clients as arrays that know their column names."""
    return {name: NamedArray(x, list(data.columns)) for name, x in data.clients.items()}


@dataclass
class NamedArray:
    """An array with the names of its columns."""

    x: Array
    columns: list[str]


def _roles(y: Any, label: str | None, sample_weight: Any, by: Any, columns: tuple[str, ...] | None) -> Roles:
    """Which columns are labels, weights and clients, where they are given by name."""
    if label is not None and y is not None and not (isinstance(y, str) and y == label):
        raise BadParameter(f"both y= and label={label!r} say what the labels are: give one of them")
    return Roles(
        _name(y if label is None else label),
        _name(sample_weight),
        _name(by),
        columns,
    )


def _name(given: Any) -> str | None:
    """The name of a column, if one is given."""
    return given if isinstance(given, str) else None


# ---- many clients ----


def is_many(data: Any) -> bool:
    """Whether `data` holds clients: a mapping, or a sequence of tables rather than of rows."""
    if isinstance(data, Mapping) or not isinstance(data, list | tuple) or not data:
        return isinstance(data, Mapping) and not is_sparse(data)  # SciPy's dok_matrix is a dict too
    first = data[0]
    if is_torch(first) or isinstance(first, np.ndarray):
        return first.ndim >= 2
    nested = isinstance(first, list) and bool(first) and isinstance(first[0], list | np.ndarray)
    pair = isinstance(first, tuple) and bool(first) and (is_frame(first[0]) or np.ndim(first[0]) == 2)
    return nested or pair or is_frame(first) or is_path(first) or is_sparse(first)


def _from_many(data: Any, y: Any, w: Any, roles: Roles, kinds: Kinds) -> list[Part]:
    """One part per entry of a mapping or a sequence."""
    if not data:
        raise BadData(NO_CLIENTS)
    entries = by_client(data)
    names = [name for name, _ in entries]
    if len(set(names)) < len(names):
        raise BadData(f"two clients are called {_twice(names)!r}: give each a name of its own")
    ys = _per_client(y, names, "y")
    ws = _per_client(w, names, "sample_weight")
    parts = []
    for name, table in entries:
        where = client_text(name)
        x, own_y, own_w = _unpair(table, ys.get(name), ws.get(name), where)
        parts.append(_part(name, x, own_y, own_w, roles, where, array=checks.array, kinds=kinds))
    _check_sites(kinds, names)
    return parts


def by_client(data: Any) -> list[tuple[str, Any]]:
    """(name, table) of each client of a mapping or a sequence."""
    if isinstance(data, Mapping):
        return list(zip(_names(data), data.values()))
    return list(zip(numbered(len(data)), data))


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
    name = single_name(data)
    part = _part(name, data, y, w, roles, "the data", array=checks.single_array, kinds=kinds)
    _check_sites(kinds, [name])
    (whole,), found = _encoded([part], kinds, roles)
    if by is not None and not roles.by:
        whole = whole._replace(groups=groups_of(by, whole.x.shape[0]))
    (whole,) = checks.labelled([whole])
    return ([whole] if whole.groups is None else _split(whole, whole.groups)), found


def single_name(data: Any) -> str:
    """The name of the one client of a table: that of its file, if it has one."""
    if not isinstance(data, Path):
        return "client-0"
    from unpooled.data.files import stem

    return stem(data)


def groups_of(by: Any, rows: int) -> np.ndarray:
    """The client of each row, from an array with one entry per row."""
    labels = to_numpy(by) if is_torch(by) else np.asarray(by)
    if labels.shape != (rows,):
        raise BadData(f"by= has {labels.size} labels for {rows} rows: give one for each row")
    return labels


def no_client(gaps: np.ndarray) -> str:
    """The sentence about the first row without a client."""
    return f"by= has no value in row {int(gaps.argmax())}: every row needs a client"


def _split(whole: Part, groups: Any) -> list[Part]:
    """One part per client: rows sorted once, then cut into views."""
    labels = np.asarray(groups)
    if (gaps := missing(labels)).any():
        raise BadData(no_client(gaps))
    checks.check_rows(whole)
    values, index = np.unique(labels.astype(np.str_) if labels.dtype == object else labels, return_inverse=True)
    order = np.argsort(index, kind="stable")
    ends = np.cumsum(np.bincount(index)).tolist()
    pieces = zip(_names(values), *(_cut(a, order, ends) for a in (whole.x, whole.y, whole.w)))
    return [Part(name, x, y, w, whole.columns, client_text(name)) for name, x, y, w in pieces]


def _cut(a: Array | None, order: np.ndarray, ends: list[int]) -> list[Array | None]:
    """The array in consecutive pieces that end at `ends`, after rows are put in `order`."""
    if a is None:
        return [None] * len(ends)
    if (order[1:] < order[:-1]).any():  # sorted rows are not copied
        a = a[namespace(a).as_tensor(order, device=a.device)] if is_torch(a) else a[order]
    return [a[start:end] for start, end in zip([0, *ends], ends)]


# ---- one client's rows ----


def client_text(name: str) -> str:
    """How a client is called in a sentence."""
    return f"client {name!r}"


def _part(
    name: str, data: Any, y: Any, w: Any, roles: Roles, where: str, array: Callable[..., Array], kinds: Kinds
) -> Part:
    """One client's rows, labels and weights from an array, a frame or a file."""
    if hasattr(data, "collect"):
        raise BadData(f"{where} is a lazy frame: call .collect() on it first")
    if not has_names(data):
        _refuse_roles(roles, where)
        if kinds.schema is not None or kinds.sites.get(name):
            raise BadData(f"columns= declares kinds, but {where} is an array without names: give a frame or a file")
        return Part(name, array(data, where), vector(y), vector(w), where=where)
    if isinstance(data, NamedArray) and kinds == Kinds() and roles.columns is None:
        return Part(name, array(data.x, where), vector(y), vector(w), data.columns, where)
    from unpooled.data.columns import named_part

    return named_part(name, data, y, w, roles, where, kinds)


def has_names(data: Any) -> bool:
    """Whether the columns of a client's table have names."""
    return is_path(data) or is_frame(data) or isinstance(data, NamedArray)


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


def vector(values: Any) -> Array | None:
    """Labels or weights as an array; tensors stay tensors."""
    return values if values is None or is_torch(values) else np.asarray(values)


def is_path(data: Any) -> bool:
    """Whether the data is given as the path of a file."""
    return isinstance(data, str | PathLike)


def listed(data: Any) -> Any:
    """The data itself, or what a path stands for: one file, or {client: file} for a folder or glob."""
    if not is_path(data):
        return data
    from unpooled.data import files

    return files.listed(data)
