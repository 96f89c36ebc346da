"""Checks of clients' data: arrays of numbers, the same columns everywhere, nothing empty or infinite. Nothing is sent.

Error messages name the client and the column.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, is_torch, missing, namespace, to_numpy
from unpooled.errors import BadData, DataWarning

TOGETHER = 16  # rows that are reduced as one


class Part(NamedTuple):
    """The rows of one client, or of all before they are split."""

    name: str
    x: Array  # (n, d)
    y: Array | None = None  # (n,) or (n, outputs)
    w: Array | None = None  # (n,)
    columns: list[str] | None = None  # (d,)
    where: str = ""  # its name in messages: "client 'zurich'", "the data"
    groups: np.ndarray | None = None  # (n,) the client of each row, before rows are split by client
    table: Any = None  # its columns before they are encoded, where they have names


# ---- the array of one client ----


def array(data: Any, where: str) -> Array:
    """The data as an array (n, d) of float64 or float32; `where` names it in error messages."""
    if is_torch(data):
        return _tensor(data, where)
    if is_sparse(data):
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


def single_array(data: Any, where: str) -> Array:
    """A plain array, checked by scikit-learn and with its messages."""
    if is_torch(data):
        return _tensor(data, where)
    from sklearn.utils.validation import check_array

    return check_array(data, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", input_name="X")


def is_sparse(data: Any) -> bool:
    """Whether the data is a sparse matrix of SciPy."""
    return hasattr(data, "tocsr")


# ---- the parts of all clients ----


def all_or_none_named(parts: Sequence[Part]) -> None:
    """Refuse frames beside arrays: columns could not be matched."""
    named = next((p for p in parts if p.table is not None), None)
    bare = next((p for p in parts if p.table is None), None)
    if named is not None and bare is not None:
        raise BadData(f"{bare.where} has no column names but {named.where} has: give all as frames or arrays")


def labelled(parts: Sequence[Part]) -> list[Part]:
    """The parts without the rows that have no label, which are counted in a warning; a part without any label is refused."""
    kept = []
    counts = {}
    for part in parts:
        gaps = _no_label(part)
        if gaps is None or not gaps.any():
            kept.append(part)
            continue
        if gaps.all():
            raise BadData(f"{part.where} has no label in any row: leave it out, or say which column holds the labels")
        counts[part.where] = int(gaps.sum())
        kept.append(_without_rows(part, gaps))
    if counts:
        where = ", ".join(f"{n} of {who}" for who, n in list(counts.items())[:5])
        more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
        warnings.warn(
            f"{sum(counts.values())} rows have no label and are left out ({where}{more})", DataWarning, stacklevel=4
        )
    return kept


def _no_label(part: Part) -> np.ndarray | None:
    """(n,) which rows lack a label; None if there are no labels, or their type has no missing values."""
    if part.y is None or not len(part.y) or len(part.y) != part.x.shape[0]:
        return None
    y = to_numpy(part.y)
    if y.dtype.kind in "iub":
        return None
    gaps = missing(y)
    return np.asarray(gaps.reshape(len(gaps), -1).any(1))


def _without_rows(part: Part, gaps: np.ndarray) -> Part:
    """The part without the rows where `gaps` is true, in data, labels, weights and groups."""

    def cut(a: Any) -> Any:
        if a is None:
            return None
        return a[namespace(a).as_tensor(~gaps, device=a.device)] if is_torch(a) else np.asarray(a)[~gaps]

    return part._replace(x=cut(part.x), y=cut(part.y), w=cut(part.w), groups=cut(part.groups))


def check(parts: Sequence[Part], whole: bool = True) -> None:
    """Refuse clients that disagree, are empty, or have infinite values; warn of constant columns.

    With `whole=False` these are not all clients: a column may be missing or constant here, and not elsewhere.
    """
    for part in parts:
        check_rows(part)
        _check_alike(part, parts[0])
        _check_labels(part)
        _check_weights(part)
    if not any(p.w is None or float(p.w.sum()) for p in parts):
        raise BadData("sample_weight is zero in every row: give some rows a weight")
    ranges = [_range(p.x) for p in parts]
    lo = np.stack([low for low, _ in ranges])  # (clients, d)
    hi = np.stack([high for _, high in ranges])
    _check_finite(parts, lo, hi)
    if whole:
        _check_informative(parts, lo, hi)


def check_rows(part: Part) -> None:
    """Refuse an empty part, and labels or weights of another length than the rows."""
    n = part.x.shape[0]
    if n == 0:
        raise BadData(f"{part.where} is empty: leave it out or give it rows")
    for values, what in ((part.y, "labels"), (part.w, "weights")):
        if values is not None and len(values) != n:
            raise BadData(f"{part.where} has {n} rows but {len(values)} {what}: give one for each row")


def check_complete(clients: Iterable[Any]) -> None:
    """Refuse a client (name, x) with missing values, for models that cannot handle them."""
    for client in clients:
        if bool(namespace(client.x).isnan(client.x).any()):
            raise BadData(
                f"client {client.name!r} has missing values: fill them in first, with MixtureImputer for example"
            )


def _check_alike(part: Part, first: Part) -> None:
    """Refuse a client whose columns, type of numbers or labels differ from those of the first client."""
    if _kind(part.x) != _kind(first.x):
        a, b = _differing(_kind(part.x), _kind(first.x))
        raise BadData(f"{part.where} holds {a} but {first.where} holds {b}: give all clients the same")
    if (part.y is None) != (first.y is None):
        without, other = (part, first) if part.y is None else (first, part)
        raise BadData(f"{without.where} has no labels but {other.where} has: give labels to all or to none")
    if part.y is not None and first.y is not None:
        outputs = part.y.shape[1:], first.y.shape[1:]
        if outputs[0] != outputs[1] or _is_text(part.y) != _is_text(first.y):
            raise BadData(
                f"the labels of {part.where}{_example(part.y)} and {first.where}{_example(first.y)} are of different kinds: "
                "give all the same"
            )


def _kind(x: Array) -> tuple:
    """What all clients must share: the number of columns, the type of numbers and the device."""
    return x.shape[1], x.dtype, x.device


def _differing(kind: tuple, other: tuple) -> tuple[str, str]:
    """What two clients hold: their numbers of columns, or all of it where these agree."""
    if kind[0] != other[0]:
        return f"{kind[0]} columns", f"{other[0]} columns"
    a, b = (f"{d} columns of {dtype} on {device}" for d, dtype, device in (kind, other))
    return a, b


def _example(y: Array) -> str:
    """One of some labels, to be shown where labels differ in kind; nothing where there are several columns of them."""
    return f" (such as {y[:1].tolist()[0]!r})" if y.ndim == 1 and len(y) else ""


def without_labels(name: str, what: str) -> BadData:
    """The refusal of a client whose labels, or targets, were not given."""
    return BadData(
        f"client {name!r} has no {what}: requires y to be passed, but the target y is None; give (X, y) for each client, or "
        "the name of a column as label="
    )


def _is_text(y: Array) -> bool:
    """Whether labels are strings."""
    return not is_torch(y) and y.dtype.kind not in "fiub"


def _check_labels(part: Part) -> None:
    """Refuse infinite labels, naming the row."""
    if part.y is None:
        return
    y = to_numpy(part.y)
    if y.dtype.kind in "iub":  # integers and bools are always finite
        return
    bad = missing(y) if y.dtype.kind != "f" else ~np.isfinite(y)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        raise BadData(f"{part.where} has an infinite label in row {row}: leave such rows out")


def _check_weights(part: Part) -> None:
    """Refuse weights that are negative, not finite, or not one per row."""
    if part.w is None:
        return
    w = to_numpy(part.w)
    if w.ndim != 1 or w.dtype.kind not in "fiub" or not (np.isfinite(w).all() and (w >= 0).all()):
        raise BadData(f"{part.where} has invalid sample_weight: give one finite, non-negative number per row")


# ---- columns: minima and maxima in one pass over the rows ----


def _range(x: Array) -> tuple[np.ndarray, np.ndarray]:
    """(minimum, maximum) of each column over its present values, (d,) each; NaN if all are missing."""
    if not is_torch(x):
        return _over_rows(np.fmin, x), _over_rows(np.fmax, x)
    xp: Any = namespace(x)
    absent = xp.isnan(x)
    lo = xp.where(absent, xp.inf, x).amin(0)
    hi = xp.where(absent, -xp.inf, x).amax(0)
    empty = absent.all(0)
    return to_numpy(xp.where(empty, xp.nan, lo)), to_numpy(xp.where(empty, xp.nan, hi))


def _over_rows(take: np.ufunc, x: np.ndarray) -> np.ndarray:  # (d,)
    """The reduction of each column; TOGETHER rows at a time are one long row, since NumPy is slow along short ones."""
    whole = len(x) - len(x) % TOGETHER
    if not (whole and x.flags.c_contiguous):
        return np.asarray(take.reduce(x, axis=0))
    long = take.reduce(x[:whole].reshape(whole // TOGETHER, -1), axis=0).reshape(TOGETHER, -1)
    return np.asarray(take.reduce(np.concatenate([long, x[whole:]]), axis=0))


def _check_finite(parts: Sequence[Part], lo: np.ndarray, hi: np.ndarray) -> None:
    """Refuse infinite values, naming client and column; `lo` and `hi` are (clients, columns)."""
    bad = np.isinf(lo) | np.isinf(hi)
    if bad.any():
        i, j = np.argwhere(bad)[0]
        column = _named(parts[0], [j])
        raise BadData(f"{parts[i].where} holds infinite values in {column}: use NaN for what is missing")


def _check_informative(parts: Sequence[Part], lo: np.ndarray, hi: np.ndarray) -> None:
    """Refuse columns that are missing everywhere, and warn of constant ones."""
    lo, hi = np.fmin.reduce(lo, axis=0), np.fmax.reduce(hi, axis=0)  # (d,)
    empty = np.flatnonzero(np.isnan(lo))
    if len(empty):
        are, it = ("is", "it") if len(empty) == 1 else ("are", "them")
        raise BadData(f"{_named(parts[0], empty)} {are} missing in every row of every client: leave {it} out")
    constant = np.flatnonzero(lo == hi)
    if len(constant) and sum(p.x.shape[0] for p in parts) > 1:
        has, it = ("has", "it") if len(constant) == 1 else ("have", "them")
        message = f"{_named(parts[0], constant)} {has} the same value in every row of every client: leave {it} out"
        warnings.warn(message, DataWarning, stacklevel=4)


def _named(part: Part, which: Sequence[int] | np.ndarray) -> str:
    """Up to five columns by name, or by position where they have no names, for an error message."""
    names = [repr(part.columns[j]) if part.columns else str(j) for j in which[:5]]
    more = f" and {len(which) - 5} more" if len(which) > 5 else ""
    return f"column{'s' if len(which) > 1 else ''} {', '.join(names)}{more}"
