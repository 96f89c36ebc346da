"""Whether a node's table has changed by a few rows since it was last used in a study. Nothing is sent.

A study that is run twice gives two sets of totals. If one row was added in between, their difference is that row, even with masked sums.
So a node answers approved studies only if its table is unchanged or has changed by at least as many rows as the smallest count that it
reveals. It keeps a sketch of every column: hashed counts of fixed size, made with a secret of the node. Sketches are never sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import Client
from unpooled.node.questions import Refused
from unpooled.node.vault import Vault

LABELS, WEIGHTS = "\0labels", "\0weights"  # names of labels and weights among the columns
BUCKETS = 2**16  # of a sketch, into which the values of a column are hashed


def admit_table(vault: Vault, parts: Iterable[Client], columns: Sequence[str], least: float, secret: bytes) -> None:
    """Remember the values that a study is about to use; Refused if a column differs in few rows from what a study last used of it.

    Parameters
    ----------
    vault : Vault
        Where the sketches are kept, by column: studies may share some of their columns.
    parts : iterable of Client
        The table.
    columns : sequence of str
        The names of its columns.
    least : float
        The fewest values that may have changed; 0 allows any change.
    secret : bytes
        The node's secret of 32 bytes.
    """
    sketches = _by_column(parts, columns, secret)
    changed = {key: values_apart(_kept(vault, key), now) for key, now in sketches.items() if key in vault}
    if any(0 < count < least for count in changed.values()):
        raise Refused(
            f"fewer than {least:g} values have changed in a column since a study last used it: two runs would show them; "
            "run the study again once more rows have changed"
        )
    for key, now in sketches.items():
        if changed.get(key, 1):
            vault[key] = now.tobytes()


def values_apart(before: np.ndarray, after: np.ndarray) -> int:
    """A lower bound of the number of values added to or removed from a column, by its two sketches; a changed value counts twice.

    Values added to and removed from one bucket cancel in its count; the sum of their hashes still shows that the bucket changed.
    """
    counts = np.abs(after[0].astype(np.int64) - before[0].astype(np.int64)).sum()
    return int(max(counts, (before[1] != after[1]).sum()))


def _kept(vault: Vault, key: str) -> np.ndarray:
    """The sketch (2, BUCKETS) in the vault."""
    return np.frombuffer(vault[key], np.uint64).reshape(2, BUCKETS)


def _by_column(parts: Iterable[Client], columns: Sequence[str], secret: bytes) -> dict[str, np.ndarray]:
    """Key in the vault -> the sketch (2, BUCKETS) of a column: values and sums of their hashes by bucket, in any order of rows."""
    found: dict[str, np.ndarray] = {}
    for part in parts:
        for name, values in _columns_of(part, columns):
            mark = _digest(secret, name)
            sketch = found.setdefault(f"values-{mark.hex()[:32]}", np.zeros((2, BUCKETS), np.uint64))
            hashes = _hashes(values, mark)
            bucket = (hashes >> np.uint64(48)).astype(np.int64)
            np.add.at(sketch[0], bucket, np.uint64(1))
            np.add.at(sketch[1], bucket, hashes)
    return found


def _columns_of(part: Client, columns: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """(name, values) of every column, of the weights and of every label."""
    x = to_numpy(part.x)
    flat = x.reshape(len(x), -1)
    names = list(columns) if len(columns) == flat.shape[1] else [f"\0{i}" for i in range(flat.shape[1])]
    yield from zip(names, flat.T)
    yield WEIGHTS, to_numpy(part.w)
    if part.y is not None:
        targets = to_numpy(part.y).reshape(len(x), -1)
        yield from ((f"{LABELS}{i}", column) for i, column in enumerate(targets.T))


def _hashes(values: np.ndarray, key: bytes) -> np.ndarray:
    """(n,) uint64, a keyed hash of each value; without the key it does not reveal the value."""
    if values.dtype.kind in "fiub":
        words = np.ascontiguousarray(values, np.float64).view(np.uint64)
    else:
        words = np.array([int.from_bytes(_digest(key, str(v))[:8], "big") for v in values], np.uint64)
    first, second = np.frombuffer(key[:16], np.uint64) | np.uint64(1)
    mixed = (words ^ (words >> np.uint64(29))) * first
    return (mixed ^ (mixed >> np.uint64(32))) * second


def _digest(secret: bytes, text: str) -> bytes:
    """SHA-256 of the secret and the text."""
    return hashlib.sha256(secret + text.encode()).digest()
