"""Whether a node's table has changed by a few rows since it was last used in a study. Nothing is sent.

A study that is run twice gives two sets of totals. If one row was added in between, their difference is that row, whatever masks were
used and whoever asked. So a node that answers approved studies answers again once its table is unchanged, or has changed by at least
as many rows as a count may tell of. It keeps a hash of every value, made with a secret of its own; hashes do not leave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import Client
from unpooled.node.questions import Refused
from unpooled.node.vault import Vault

LABELS, WEIGHTS = "\0labels", "\0weights"  # what labels and weights are kept as, beside the columns


def admit_table(vault: Vault, parts: Iterable[Client], columns: Sequence[str], least: float, secret: bytes) -> None:
    """Remember the values that a study is about to use; Refused if a column differs in few rows from what a study last used of it.

    Parameters
    ----------
    vault : Vault
        Where the hashes are kept, by column: studies may share some of their columns.
    parts : iterable of Client
        The table.
    columns : sequence of str
        The names of its columns.
    least : float
        The fewest values that may have changed; 0 asks nothing.
    secret : bytes
        Of the node, 32 of them.
    """
    hashed = _by_column(parts, columns, secret)
    changed = {key: values_apart(_kept(vault, key), values) for key, values in hashed.items() if key in vault}
    if any(0 < count < least for count in changed.values()):
        raise Refused(
            f"fewer than {least:g} values have changed in a column since a study last used it: two runs would show them; "
            "run the study again once more rows have changed"
        )
    for key, values in hashed.items():
        if changed.get(key, 1):
            vault[key] = values.tobytes()


def values_apart(before: np.ndarray, after: np.ndarray) -> int:
    """How many values are in one of two columns and not in the other, repeated ones counted; a value that changed counts twice."""
    names, place = np.unique(np.concatenate([before, after]), return_inverse=True)
    old = np.bincount(place[: len(before)], minlength=len(names))
    new = np.bincount(place[len(before) :], minlength=len(names))
    return int(np.abs(old - new).sum())


def _kept(vault: Vault, key: str) -> np.ndarray:
    return np.frombuffer(vault[key], np.uint64)


def _by_column(parts: Iterable[Client], columns: Sequence[str], secret: bytes) -> dict[str, np.ndarray]:
    """Key in the vault -> sorted hashes of a column's values."""
    found: dict[str, list[np.ndarray]] = {}
    for part in parts:
        for name, values in _columns_of(part, columns):
            found.setdefault(name, []).append(_hashes(values, _digest(secret, name)))
    return {f"values-{_digest(secret, name).hex()[:32]}": np.sort(np.concatenate(some)) for name, some in found.items()}


def _columns_of(part: Client, columns: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    x = to_numpy(part.x)
    flat = x.reshape(len(x), -1)
    names = list(columns) if len(columns) == flat.shape[1] else [f"\0{i}" for i in range(flat.shape[1])]
    yield from zip(names, flat.T)
    yield WEIGHTS, to_numpy(part.w)
    if part.y is not None:
        yield LABELS, to_numpy(part.y).reshape(len(x), -1)[:, 0]


def _hashes(values: np.ndarray, key: bytes) -> np.ndarray:
    """A number for each value (n,) uint64; without the key nobody can tell values by it."""
    if values.dtype.kind in "fiub":
        words = np.ascontiguousarray(values, np.float64).view(np.uint64)
    else:
        words = np.array([int.from_bytes(_digest(key, str(v))[:8], "big") for v in values], np.uint64)
    first, second = np.frombuffer(key[:16], np.uint64) | np.uint64(1)
    mixed = (words ^ (words >> np.uint64(29))) * first
    return (mixed ^ (mixed >> np.uint64(32))) * second


def _digest(secret: bytes, text: str) -> bytes:
    return hashlib.sha256(secret + text.encode()).digest()
