"""The classes of a federation and labels as integer codes: one SUM of rows per class, or one GATHER of label names.

The SUM is asked where the classes are known: they were given (`classes=`), or all clients are in this process. Over a
network without `classes=` the names of the labels have to be collected first, which is the GATHER. Either is one
exchange at the start of a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, Int, received_bytes, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.errors import BadData
from unpooled.federation import Federation, refuse_few
from unpooled.tree import message

MOST_CODES = 1000  # labels that are whole numbers below it are found by counting


@message("learners.LabelCounts")
class LabelCounts(NamedTuple):
    """Rows per class, and what the server checks before a run; every field adds over rows."""

    rows: Float[Array, "", ">=0 rows"]
    counts: Float[Array, "classes", ">=0 rows"]  # rows of each class
    outside: Float[Array, "", ">=0 rows"]  # rows whose label is none of the classes
    missing: Float[Array, "", ">=0 rows"]  # rows with missing values
    columns: Float[Array, "", ">=0"]  # sum over rows of the number of columns
    columns_squared: Float[Array, "", ">=0"]  # the same of its square: tells whether all rows are equally wide


@message("learners.TableSummary")
class TableSummary(NamedTuple):
    """One client's labels, columns and missing values."""

    labels: Int[Array, "bytes"]  # the client's classes as a JSON list in UTF-8
    columns: Int[Array, ""]
    missing: Int[Array, "", ">=0 rows"]  # rows with missing values


@client("learners.label_counts", SUM, adds=True, brief=True)
def label_counts(down: None, client: Client, *, labels: list) -> LabelCounts:
    """How many rows there are of each class."""
    y = _labels_of(client)
    real = to_numpy(client.w) > 0  # (..., n)
    codes, known = _positions(y, labels)
    hits = [(real & known & (codes == code)).sum(-1) for code in range(len(labels))]
    rows = real.sum(-1).astype(np.float64)
    width = client.x.shape[-1]
    outside = (real & ~known).sum(-1).astype(np.float64)
    missing = _incomplete(client)
    return LabelCounts(rows, np.stack(hits, -1).astype(np.float64), outside, missing, width * rows, width**2 * rows)


@client("learners.table_summary", GATHER, batched=False)
def table_summary(down: None, client: Client) -> TableSummary:
    """Which classes the client has, its number of columns, and how many of its rows have missing values."""
    text = json.dumps(distinct(_labels_of(client)).tolist())
    labels = np.frombuffer(text.encode(), dtype=np.uint8)
    return TableSummary(labels, np.asarray(client.x.shape[-1]), _incomplete(client).astype(np.int64))


def _labels_of(client: Client) -> np.ndarray:
    """The client's labels; refused when it has none."""
    if client.y is None:
        text = 'give y=, (X, y) pairs, or label = "COLUMN" under [data] of a config file'
        raise BadData(f"client {client.name!r} has no labels: {text}")
    return to_numpy(client.y)


def distinct(y: np.ndarray) -> np.ndarray:
    """The labels in order, each once; small whole numbers are counted."""
    if y.ndim != 1:
        raise BadData(f"labels have shape {y.shape}, and one for each row is needed: give a vector, such as y.ravel()")
    if y.dtype.kind in "iu" and y.size and y.min() >= 0 and y.max() < MOST_CODES:
        return np.flatnonzero(np.bincount(y))
    return np.unique(y)


def _incomplete(client: Client) -> np.ndarray:
    """How many rows have missing values, (...); found once."""
    if "incomplete" not in client.memo:
        x = to_numpy(client.x)
        w = to_numpy(client.w)
        with np.errstate(all="ignore"):
            whole = not np.isnan(x.sum())
        missing = np.zeros(w.shape[:-1]) if whole else (np.isnan(x).any(-1) & (w > 0)).sum(-1)
        client.memo["incomplete"] = np.asarray(missing, dtype=np.float64)
    return client.memo["incomplete"]


# ---- at the server ----


def find_classes(fed: Federation, classes: Sequence | None = None, allow_missing: bool = False) -> tuple[list, int]:
    """The classes of a federation, sorted, and its number of columns; one exchange.

    Parameters
    ----------
    fed : Federation
    classes : sequence or None, default=None
        All classes, where they are known; a label that is not among them is refused. None takes those of the clients.
    allow_missing : bool, default=False
        Whether rows may have missing values.

    Returns
    -------
    labels : list
        The classes in order; a label's code is its position here.
    columns : int
    """
    here = fed.here()
    if len(here) == len(fed.names):  # all clients are in this process: name the client at fault before a round is spent
        summaries = {c.name: table_summary.answer(None, c) for c in here}
        labels, _ = _checked(summaries, classes, allow_missing)
        return labels, _count(fed, labels, allow_missing)
    if classes is None:
        return _checked(fed.gather(table_summary, None), None, allow_missing)
    labels = _sorted_classes(set(classes), given=True)
    return labels, _count(fed, labels, allow_missing)


def _count(fed: Federation, labels: list, allow_missing: bool) -> int:
    """Ask for the rows per class, refuse what cannot be trained on, and return the number of columns."""
    total = fed.sum(label_counts.using(labels=labels), None)
    rows = max(float(total.rows), 1.0)
    columns = float(total.columns) / rows
    if float(total.outside) > 0:
        raise BadData(f"{float(total.outside):.0f} rows have labels outside classes={labels}: correct or add them")
    if abs(float(total.columns_squared) / rows - columns**2) > 1e-6:
        raise BadData("clients have rows of different widths: give all the same columns")
    if float(total.missing) > 0 and not allow_missing:
        raise BadData(f"{float(total.missing):.0f} rows have missing values, and {_COMPLETE}")
    refuse_few(fed, {f"class {label!r}": n for label, n in zip(labels, to_numpy(total.counts).tolist())})
    return round(columns)


_COMPLETE = "learners need complete rows: fill them in first (MixtureImputer does), or use FedGMM without embedding="


def _checked(summaries: Mapping[str, TableSummary], classes: Sequence | None, allow_missing: bool) -> tuple[list, int]:
    """(classes, columns) from the clients' own summaries; the first client that does not fit is named."""
    own = {name: _read_labels(name, summary) for name, summary in summaries.items()}
    seen = {*(classes or ()), *(label for labels in own.values() for label in labels)}
    if classes is not None and (unknown := sorted(seen - {*classes}, key=str)):
        name = next(name for name, labels in own.items() if unknown[0] in labels)
        raise BadData(
            f"client {name!r} has the label {unknown[0]!r}: correct it, or add it to classes={list(classes)!r}"
        )
    labels = _sorted_classes(seen, given=classes is not None)
    widths = sorted({int(summary.columns) for summary in summaries.values()})
    if len(widths) > 1:
        raise BadData(f"clients have rows of different widths {widths}: give all the same columns")
    missing = {name: int(summary.missing) for name, summary in summaries.items() if summary.missing}
    if missing and not allow_missing:
        name, count = next(iter(missing.items()))
        raise BadData(f"client {name!r} has missing values in {count} of its rows, and {_COMPLETE}")
    return labels, widths[0]


def _sorted_classes(classes: set, given: bool) -> list:
    """The classes in order; refuses mixed types, continuous values and a single class."""
    if len({type(label) is str for label in classes}) > 1:
        raise BadData("some labels are strings and others are numbers: give all clients the same type of label")
    fractions = [label for label in classes if isinstance(label, float) and not label.is_integer()]
    if fractions and not given:
        raise BadData(
            f"labels such as {min(fractions)!r} are continuous: a classifier needs strings or whole numbers, and FedBNR or "
            "BayesianRegression predict continuous values"
        )
    if len(classes) < 2:
        raise BadData(f"the only class is {next(iter(classes), None)!r}: a classifier needs at least two classes")
    return sorted(classes)


def _read_labels(name: str, summary: TableSummary) -> list:
    """A client's classes, decoded; anything but a JSON list of strings and numbers is refused."""
    try:
        labels = json.loads(received_bytes(summary.labels))
    except (ValueError, RecursionError):
        labels = None
    if not (isinstance(labels, list) and all(isinstance(label, str | int | float) for label in labels)):
        raise BadData(
            f"client {name!r} sent a list of classes that cannot be read: restart that client, or leave it out"
        )
    return labels


# ---- labels as codes ----


def codes_of(client: Client, labels: Sequence) -> np.ndarray:
    """The codes of a client's labels, see `codes`; found once."""
    known = client.memo.get("codes")
    if known is None or known[0] != list(labels):
        known = client.memo["codes"] = (list(labels), codes(client.y, labels, client.w))
    return known[1]


def codes(y: Array, labels: Sequence, w: Array | None = None) -> np.ndarray:
    """The position of each label in `labels`; padding (weight 0) gets any code, an unknown label is refused."""
    positions, known = _positions(to_numpy(y), labels)
    unknown = ~known
    if w is not None:
        unknown &= to_numpy(w) > 0
    if unknown.any():
        label = to_numpy(y)[unknown][:1].tolist()[0]
        raise BadData(f"label {label!r} is outside the known classes: they are {list(labels)}")
    return positions


def _positions(y: np.ndarray, labels: Sequence) -> tuple[np.ndarray, Any]:
    """(positions in the sorted `labels`, whether each label is among them)."""
    known = np.asarray(labels)
    if _are_codes(y, known):
        return y, np.ones(y.shape, bool)
    if y.dtype.kind in "OU" or known.dtype.kind in "OU":
        y = y.astype(str)
        known = known.astype(str)
    positions = np.searchsorted(known, y).clip(max=len(known) - 1)
    return positions, known[positions] == y


def _are_codes(y: np.ndarray, known: np.ndarray) -> bool:
    """Whether the labels are codes already: integers from 0 to the number of classes - 1."""
    if not (y.size and y.dtype.kind in "iu" and known.dtype.kind in "iu"):
        return False
    return bool(np.array_equal(known, np.arange(len(known))) and y.min() >= 0 and y.max() < len(known))
