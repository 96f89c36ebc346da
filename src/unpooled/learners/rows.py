"""A client's rows as learners take them: labels as integer codes, tensors on the trainer's device. Nothing is sent."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.client import Client
from unpooled.learners.labels import codes_of
from unpooled.maths.folds import tenths
from unpooled.tree import message

FEW = 1000  # rows of a client, below which a fifth of them is held out


@message("learners.Rows")
class Rows(NamedTuple):
    """What learners are trained on."""

    x: Array  # (..., n, d)
    y: Array  # (..., n) codes of classes
    w: Array  # (..., n) row weights, 0 is padding


def rows(client: Client, labels: Sequence, device: Any = None, dtype: str | None = None) -> Rows:
    """The client's rows: NumPy arrays where `device` is None, else tensors on it, converted to `dtype` if given."""
    y = codes_of(client, labels)
    if device is None:
        return Rows(to_numpy(client.x), y, to_numpy(client.w))
    import torch

    x, w = (cached_tensor(a, device, dtype) for a in (client.x, client.w))
    return Rows(x, torch.as_tensor(y, device=device), w)


def held_out(client: Client) -> np.ndarray:  # (..., n) bool
    """Which rows are held out: a tenth, a fifth of fewer than FEW rows, none of fewer than ten; see `maths.folds`.

    It depends on the rows of each client alone, not on their order, on padding, or on how clients are stacked.
    """
    if "held_out" not in client.memo:
        w = to_numpy(client.w)
        y = to_numpy(client.y)
        x = to_numpy(client.x)
        n, d = x.shape[-2:]
        flat = zip(x.reshape(-1, n, d), y.reshape(-1, n), w.reshape(-1, n))
        client.memo["held_out"] = np.stack([_held_out(*one) for one in flat]).reshape(w.shape)
    return client.memo["held_out"]


def _held_out(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:  # (n,) bool
    """`held_out` of one client: rows are chosen by a hash of their values, which puts each into one of ten parts."""
    live = np.flatnonzero(w > 0)
    out = np.zeros(len(w), bool)
    if len(live) >= 10:
        part = tenths(x[live], y[live])  # 0 to 9
        held_parts = (0, 5) if len(live) < FEW else (0,)
        out[live] = np.isin(part, held_parts)
    return out


_TENSORS: dict[tuple, tuple[weakref.ref, Any]] = {}


def cached_tensor(a: Array, device: Any, dtype: str | None) -> Any:
    """`a` as a tensor on a device, cached while `a` lives: rows are copied to a GPU once, not every round."""
    import torch

    key = (id(a), str(device), dtype)
    if key not in _TENSORS or _TENSORS[key][0]() is not a:
        tensor = torch.as_tensor(a, device=device, dtype=getattr(torch, dtype) if dtype else None)
        if tensor.data_ptr() == torch.as_tensor(a).data_ptr():
            return tensor  # a view of the same memory: caching it would keep `a` alive
        _TENSORS[key] = (weakref.ref(a), tensor)
        weakref.finalize(a, _TENSORS.pop, key, None).atexit = False
    return _TENSORS[key][1]
