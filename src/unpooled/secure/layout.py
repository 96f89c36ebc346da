"""An answer as one vector of ring elements, and the description that gives its structure back. Sends nothing.

The description is sent unencrypted: field names, shapes and dtypes, never a number of the answer.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import claimed_bytes, to_numpy
from unpooled.errors import BadData, MaskingRefused
from unpooled.secure import ring
from unpooled.tree import SchemaError, Tree


def encode(answer: Tree, n_clients: int) -> tuple[str, np.ndarray]:
    """The description of an answer, and its numbers as limbs (3, m)."""
    arrays = [to_numpy(leaf) for leaf in tree.leaves(answer)]
    structure, _ = tree.pack(tree.rebuild(answer, arrays))
    if _holds_words(json.loads(structure)):
        raise BadData("the answer holds text or True/False, which cannot be masked: answer with numbers alone")
    layout = json.dumps({"structure": structure, "leaves": [_spec(a) for a in arrays]})
    return layout, np.concatenate([_encode_leaf(a, n_clients) for a in arrays] or [_nothing()], axis=1)


def _spec(a: np.ndarray) -> list[Any]:
    """[dtype, shape] of an array, for JSON."""
    return [a.dtype.newbyteorder("<").str, list(a.shape)]


def _holds_words(node: Any) -> bool:
    """Whether a packed structure has strings or booleans among its values; None is allowed."""
    if isinstance(node, dict) and "value" in node:
        return node["value"] is not None
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return any(_holds_words(child) for child in children)


def _nothing() -> np.ndarray:
    """Limbs (3, 0) of an answer without numbers."""
    return np.zeros((ring.LIMBS, 0), ring.LIMB)


def _encode_leaf(a: np.ndarray, n_clients: int) -> np.ndarray:
    """The limbs (3, size) of one array; BadData for numbers that are not real or too wide."""
    if a.dtype.kind in "iu":
        return ring.encode_integers(a.ravel())
    if a.dtype.kind == "f" and a.dtype.itemsize <= 8:
        return ring.encode(a.ravel(), n_clients)
    raise BadData(f"the answer holds {a.dtype} numbers, which cannot be masked: answer with float64 or int64")


def decode(layout: str, limbs: np.ndarray) -> Tree:
    """The answer that a description and limbs (3, m) stand for."""
    structure, specs = _read(layout)
    if limbs.shape != (ring.LIMBS, size(layout)):
        raise MaskingRefused(f"a total of shape {limbs.shape} does not fit its description of {size(layout)} numbers")
    arrays, start = [], 0
    for dtype, shape in specs:
        end = start + math.prod(shape)
        arrays.append(_decode_leaf(limbs[:, start:end], np.dtype(dtype)).reshape(shape))
        start = end
    try:
        return tree.unpack(structure, arrays, importing=False)
    except SchemaError as error:
        raise MaskingRefused(f"the description of a masked answer is broken: {error}") from error


def _decode_leaf(limbs: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The numbers (size,) of limbs (3, size), as this dtype."""
    if dtype.kind in "iu":
        return ring.decode_integers(limbs, dtype)
    return ring.decode(limbs).astype(dtype)


def size(layout: str) -> int:
    """How many numbers an answer of this description holds."""
    return sum(math.prod(shape) for _, shape in _read(layout)[1])


def _read(layout: Any) -> tuple[str, list[tuple[str, list[int]]]]:
    """(structure, [(dtype, shape), ...]) of a description that was received; MaskingRefused if it is broken."""
    try:
        parts = json.loads(layout)
        structure = parts["structure"]
        specs = [(dtype, shape) for dtype, shape in parts["leaves"]]
        for dtype, shape in specs:
            claimed_bytes(dtype, shape)
            if np.dtype(dtype).kind not in "fiu":
                raise ValueError(f"it holds {dtype}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MaskingRefused("the description of a masked answer is broken") from error
    return structure, specs
