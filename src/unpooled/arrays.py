"""NumPy or torch, by where the data lives; and the annotations that say what an array must look like.

`Float[Array, "k d"]` is a floating array of shape (k, d), for readers, type checkers and the wire alike:
`tree.check` refuses an answer that does not fit. `"*c"` stands for any number of axes; a third entry `">=0"` bounds the values, and
`">=0 rows"` marks a count of rows, which a node does not let out when it is small.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

Array = Any  # np.ndarray or torch.Tensor
NUMBERS = "fiub"  # NumPy dtype kinds that may travel
VAST = 2**40  # what the other axes of an array without any number may come to: NumPy counts them all the same

if TYPE_CHECKING:
    from typing import Annotated as Float  # an alias by assignment would hide it from type checkers
    from typing import Annotated as Int
else:

    class Spec(NamedTuple):
        """What one leaf of a message must look like."""

        kind: str  # the NumPy dtype kind: "f" or "i"
        dims: tuple[str, ...]
        bound: str = ""

    class _Kind:
        def __init__(self, kind: str):
            self.kind = kind

        def __getitem__(self, item):
            array, dims, *rest = item
            return Annotated[array, Spec(self.kind, tuple(dims.split()), *rest)]

    Float = _Kind("f")
    Int = _Kind("i")


def is_torch(a: Any) -> bool:
    """Whether `a` is a torch tensor; never imports torch to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(a, torch.Tensor)


def namespace(*arrays: Any):
    """The module, torch or NumPy, whose functions work on these arrays."""
    return sys.modules["torch"] if any(is_torch(a) for a in arrays) else np


def to_numpy(a: Any) -> np.ndarray:
    """The array in this process's memory, C-ordered; a 0-d array stays 0-d."""
    return np.asarray(a.detach().cpu().numpy() if is_torch(a) else a, order="C")


def like(a: Any, reference: Any) -> Array:
    """`a` as the same kind of array, dtype and device as `reference`."""
    if is_torch(reference):
        return sys.modules["torch"].as_tensor(a, dtype=reference.dtype, device=reference.device)
    return np.asarray(to_numpy(a), dtype=np.asarray(reference).dtype)


def nbytes(a: Any) -> int:
    """Bytes the array takes on the wire."""
    return a.numel() * a.element_size() if is_torch(a) else np.asarray(a).nbytes


def claimed_bytes(dtype: Any, shape: list[int]) -> int:
    """What an array so described would take up; ValueError if there is no such array of numbers. Takes no memory."""
    try:
        kind = np.dtype(dtype) if isinstance(dtype, str) and len(dtype) <= 4 else None
    except TypeError:
        kind = None
    if kind is None or kind.kind not in NUMBERS:
        raise ValueError(f"it holds {str(dtype)[:20]!r} instead of numbers")
    whole = len(shape) <= 32 and all(type(n) is int and n >= 0 for n in shape)
    if not whole or (0 in shape and math.prod(n for n in shape if n) > VAST):
        raise ValueError("invalid array shape")
    return math.prod(shape) * kind.itemsize


def kind(a: Any) -> str:
    """The NumPy letter of its dtype ("f", "i", ...), found where the array lives."""
    if is_torch(a):
        return "f" if a.is_floating_point() else "b" if str(a.dtype) == "torch.bool" else "i"
    return np.asarray(a).dtype.kind


def all_finite(a: Any) -> bool:
    """Whether every number is finite, found where the array lives: an array on a GPU is not copied for it."""
    return bool(namespace(a).isfinite(a).all())


def received_bytes(sent: object) -> bytes:
    """What a client sent as a vector of bytes; ValueError for anything else."""
    if not (isinstance(sent, np.ndarray) and sent.dtype == np.uint8 and sent.ndim == 1):
        raise ValueError("it is not a vector of bytes")
    return sent.tobytes()
