"""A client's rows as a learner wants them: labels as codes, on the right device. One GATHER of labels at the start of a run."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Int, received_bytes, to_numpy
from unpooled.client import GATHER, Client, client
from unpooled.errors import BadData
from unpooled.federation import Federation
from unpooled.tree import message


@message("learners.Rows")
class Rows(NamedTuple):
    """What is trained on."""

    x: Array  # (..., n, d)
    y: Array  # (..., n) codes of classes
    w: Array  # (..., n)


@message("learners.Kind")
class Kind(NamedTuple):
    """What a client's data is made of."""

    labels: Int[Array, "bytes"]  # the client's classes as a JSON list in UTF-8
    columns: Int[Array, ""]
    missing: Int[Array, "", ">=0 rows"]  # rows with missing values


@client("learners.kind", GATHER, batched=False)
def kind(down: None, client: Client) -> Kind:
    """Which classes the client has seen, how wide its rows are, and how many of them have holes."""
    if client.y is None:
        raise BadData(f"client {client.name!r} has no labels: give y= or (X, y) pairs")
    text = json.dumps(np.unique(to_numpy(client.y)).tolist())
    holes = np.isnan(to_numpy(client.x)).any(-1) & (to_numpy(client.w) > 0)
    return Kind(np.frombuffer(text.encode(), dtype=np.uint8), np.asarray(client.x.shape[-1]), np.asarray(holes.sum()))


def kinds(fed: Federation, known: Sequence | None = None, holes: bool = False) -> tuple[list, int]:
    """(all classes in order, columns) of a federation; a label that is not among the `known` classes is refused, and so
    are missing values where no `holes` are allowed.
    """
    answers = fed.gather(kind, None)
    labels = {name: _read_labels(name, a) for name, a in answers.items()}
    seen = {*(known or ()), *(label for own in labels.values() for label in own)}
    if known is not None and (strange := sorted(seen - {*known}, key=str)):
        name = next(name for name, own in labels.items() if strange[0] in own)
        raise BadData(f"client {name!r} has the label {strange[0]!r}: correct it, or add it to classes={list(known)!r}")
    if len({type(label) is str for label in seen}) > 1:
        raise BadData("some clients' labels are words and others' are numbers: give all the same kind")
    if known is None and (split := [label for label in seen if isinstance(label, float) and not label.is_integer()]):
        remedy = "classes are words or whole numbers, and FedBNR or BayesianRegression predict measurements"
        raise BadData(f"labels such as {min(split)!r} are measurements, not classes: {remedy}")
    if len(seen) < 2:
        raise BadData(f"all labels are {next(iter(seen))!r}: a classifier needs at least two classes")
    widths = {name: int(a.columns) for name, a in answers.items()}
    if len(set(widths.values())) > 1:
        raise BadData(
            f"clients have rows of different widths {sorted(set(widths.values()))}: give all the same columns"
        )
    empty = {name: int(a.missing) for name, a in answers.items() if a.missing}
    if empty and not holes:
        name = next(iter(empty))
        text = f"client {name!r} has missing values in {empty[name]} of its rows, and learners need whole ones"
        raise BadData(f"{text}: fill them in first (MixtureImputer does), or use FedGMM without embedding=")
    return sorted(seen), next(iter(widths.values()))


def _read_labels(name: str, told: Kind) -> list:
    """A client's classes, as it tells them."""
    try:
        labels = json.loads(received_bytes(told.labels))
    except (ValueError, RecursionError):
        labels = None
    if not (isinstance(labels, list) and all(isinstance(label, str | int | float) for label in labels)):
        raise BadData(
            f"what client {name!r} tells of its classes cannot be read: start that client again, or leave it out"
        )
    return labels


def codes(y: Array, labels: Sequence, w: Array | None = None) -> np.ndarray:
    """The place of each label in `labels`; padding gets 0, a label that is not there is refused."""
    known, given = np.asarray(labels), to_numpy(y)
    if _are_codes(given, known):
        return given
    if given.dtype.kind in "OU" or known.dtype.kind in "OU":
        given = given.astype(known.dtype if known.dtype.kind == "U" else str)
    found = np.searchsorted(known, given).clip(max=len(known) - 1)
    strange = known[found] != given
    if w is not None:
        strange &= to_numpy(w) > 0
    if strange.any():
        raise BadData(f"label {given[strange][0].item()!r} is outside the known classes: they are {known.tolist()}")
    return found


def _are_codes(given: np.ndarray, known: np.ndarray) -> bool:
    """Whether labels are places already: whole numbers from 0, all of them known."""
    whole = given.size and given.dtype.kind in "iu" and known.dtype.kind in "iu"
    return bool(
        whole and np.array_equal(known, np.arange(len(known))) and given.min() >= 0 and given.max() < len(known)
    )


def rows(client: Client, labels: Sequence, device: Any = None, dtype: str | None = None) -> Rows:
    """The client's rows: NumPy as they are when `device` is None, else tensors there, of `dtype` where it is given."""
    y = codes(client.y, labels, client.w)
    if device is None:
        return Rows(to_numpy(client.x), y, to_numpy(client.w))
    import torch

    x, w = (kept(a, device, dtype) for a in (client.x, client.w))
    return Rows(x, torch.as_tensor(y, device=device), w)


_KEPT: dict[tuple, tuple[weakref.ref, Any]] = {}


def kept(a: Array, device: Any, dtype: str | None) -> Any:
    """`a` as a tensor on a device, remembered while `a` lives: rows cross to a GPU once, not every round."""
    import torch

    key = (id(a), str(device), dtype)
    if key not in _KEPT or _KEPT[key][0]() is not a:
        moved = torch.as_tensor(a, device=device, dtype=getattr(torch, dtype) if dtype else None)
        if moved.data_ptr() == torch.as_tensor(a).data_ptr():
            return moved  # the same memory: it costs nothing, and remembered it would keep `a` alive
        _KEPT[key] = (weakref.ref(a), moved)
        weakref.finalize(a, _KEPT.pop, key, None).atexit = False
    return _KEPT[key][1]
