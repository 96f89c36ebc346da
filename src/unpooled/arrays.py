"""Functions that work on NumPy arrays and torch tensors alike, and annotations for the dtype and shape of an array.

`Float[Array, "k d"]` is a floating array of shape (k, d), for readers, type checkers and the wire alike: `tree.check`
refuses an answer that does not fit. `Int` is for integers, `Number` for either. `"*c"` stands for any number of axes; a
third entry `">=0"` bounds the values, and `">=0 rows"` marks a count of rows, which a node does not let out when it is
small.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

Array = Any  # np.ndarray or torch.Tensor
NUMBERS = "fiub"  # NumPy dtype kinds that may travel
MAX_EMPTY_SIZE = 2**40  # largest product of the non-zero axes of an empty array: NumPy computes it as well

if TYPE_CHECKING:
    from typing import Annotated as Float  # an alias by assignment would hide it from type checkers
    from typing import Annotated as Int
    from typing import Annotated as Number
else:

    class Spec(NamedTuple):
        """The dtype, shape and bound of one leaf of a message."""

        kind: str  # the NumPy dtype kind: "f" or "i"; "n" for either
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
    Number = _Kind("n")


def is_torch(a: Any) -> bool:
    """Whether `a` is a torch tensor; never imports torch to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(a, torch.Tensor)


def namespace(*arrays: Any):
    """The module, torch or NumPy, whose functions work on these arrays."""
    return sys.modules["torch"] if any(is_torch(a) for a in arrays) else np


def to_numpy(a: Any) -> np.ndarray:
    """The array as a C-ordered NumPy array; a 0-d array stays 0-d."""
    return np.asarray(a.detach().cpu().numpy() if is_torch(a) else a, order="C")


def doubles(a: Any) -> np.ndarray:
    """The array as a NumPy array in double precision, which the server uses for sums."""
    return to_numpy(a).astype(np.float64, copy=False)


def like(a: Any, reference: Any) -> Array:
    """`a` as the same kind of array, dtype and device as `reference`."""
    if is_torch(reference):
        return sys.modules["torch"].as_tensor(a, dtype=reference.dtype, device=reference.device)
    return np.asarray(to_numpy(a), dtype=np.asarray(reference).dtype)


def nbytes(a: Any) -> int:
    """Bytes the array takes on the wire."""
    return a.numel() * a.element_size() if is_torch(a) else np.asarray(a).nbytes


def claimed_bytes(dtype: Any, shape: list[int]) -> int:
    """Bytes that an array of this dtype and shape takes, without allocating it; ValueError if either is invalid."""
    try:
        kind = np.dtype(dtype) if isinstance(dtype, str) and len(dtype) <= 4 else None
    except TypeError:
        kind = None
    if kind is None or kind.kind not in NUMBERS:
        raise ValueError(f"it holds {str(dtype)[:20]!r} instead of numbers")
    whole = len(shape) <= 32 and all(type(n) is int and n >= 0 for n in shape)
    if not whole or (0 in shape and math.prod(n for n in shape if n) > MAX_EMPTY_SIZE):
        raise ValueError("invalid array shape")
    return math.prod(shape) * kind.itemsize


def kind(a: Any) -> str:
    """The NumPy dtype kind ("f", "i", ...); an array on a GPU is not copied for it."""
    if isinstance(a, np.ndarray):
        return a.dtype.kind
    if not is_torch(a):
        return np.asarray(a).dtype.kind
    if a.is_floating_point():
        return "f"
    return "b" if str(a.dtype) == "torch.bool" else "i"


def all_finite(a: Any) -> bool:
    """Whether every number is finite; an array on a GPU is not copied for it."""
    return bool(namespace(a).isfinite(a).all())


def received_bytes(sent: object) -> bytes:
    """The bytes in a uint8 vector that a client sent; ValueError for anything else."""
    if not (isinstance(sent, np.ndarray) and sent.dtype == np.uint8 and sent.ndim == 1):
        raise ValueError("it is not a vector of bytes")
    return sent.tobytes()


def is_frame(data: Any) -> bool:
    """Whether `data` has named columns, as a frame of pandas, polars or pyarrow has."""
    named = hasattr(data, "columns") and hasattr(data, "__getitem__")
    return named and (hasattr(data, "to_numpy") or hasattr(data, "column_names"))


def missing(values: np.ndarray) -> np.ndarray:
    """Which entries are missing (NaN, NaT, None or pandas' NA); (n,) bool."""
    if values.dtype.kind in "fc":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype != object:
        return np.zeros(values.shape, bool)
    holes = [v is None or type(v).__name__ == "NAType" or bool(v != v) for v in values.ravel()]
    return np.array(holes, dtype=bool).reshape(values.shape)
