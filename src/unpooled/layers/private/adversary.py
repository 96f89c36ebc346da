"""Tries to break a declared sensitivity: nasty parameters, nasty rows, and how far each row moves the answer. Sends nothing.

For whoever declares a question private. Parameters are made from the question's own annotations: numbers of all magnitudes, zeros,
infinities, NaN. It can find a mistake; it cannot prove that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.client import Ask, Client
from unpooled.tree import Tree

ODD = (0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-300, 1.0, -1.0)
Maker = Callable[[np.random.Generator, dict[str, int]], np.ndarray]


class Found(NamedTuple):
    """The outcome of many tries."""

    largest: float  # move of the answer by one row, in L2 norm
    answered: int  # tries that were answered; the others had parameters that cannot be used
    told: int  # refusals that depended on the row, and so told something of it: must be 0


def attack(
    question: Ask, tries: int, rng: np.random.Generator, *, width: int = 3, target: bool = False, **makers: Maker
) -> Found:
    """The largest move of the answer by one row, over nasty pairs of parameters and rows.

    Parameters
    ----------
    question : Ask
        A SUM that adds over rows, with its options.
    tries : int
        Pairs of parameters and rows.
    rng : Generator
    width : int, default 3
        Columns of a row.
    target : bool, default False
        Whether rows have targets; parameters then speak of one column more.
    **makers : callable
        `(rng, sizes) -> array` for parameters by name that must not be arbitrary, such as covariances.

    Returns
    -------
    found : Found
    """
    largest, answered, told = 0.0, 0, 0
    for _ in range(tries):
        sizes = {"d": width + target, "f": width, "k": int(rng.integers(1, 5)), "m": int(rng.integers(1, 6))}
        sizes["r"] = int(rng.integers(2, 5))
        down = nasty_tree(question.types[0], sizes, makers, rng)
        one = nasty_client(width, target, rng)
        up = _answer(question, down, one)
        if up is None:
            plain = Client("plain", np.zeros((1, width)), np.zeros(1) if target else None)
            told += _answer(question, down, plain) is not None
            continue
        answered += 1
        largest = max(largest, float(np.linalg.norm(tree.flatten(up))))
    return Found(largest, answered, told)


def _answer(question: Ask, down: Tree, one: Client) -> Tree:
    """The answer, or None if the question refuses."""
    try:
        return question(down, one)
    except (np.linalg.LinAlgError, ValueError):
        return None


def nasty_client(width: int, target: bool, rng: np.random.Generator) -> Client:
    """One row of any magnitude, with gaps now and then, and a weight that need not be one."""
    x = nasty((1, width), rng, odd=0.05)
    x = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    y = nasty((1,), rng, odd=0.05) if target else None
    w = np.array([rng.choice([1.0, 1.0, 1.0, 0.3, 7.0, -2.0, np.inf, np.nan])])
    return Client("one", x, y, w)


def nasty_tree(schema: Any, sizes: Mapping[str, int], makers: Mapping[str, Maker], rng: np.random.Generator) -> Tree:
    """A value that fits the annotations, and nothing else."""
    if hasattr(schema, "_fields"):
        hints = tree.hints(schema)
        parts = [_nasty_field(name, hints[name], sizes, makers, rng) for name in schema._fields]
        return schema(*parts)
    spec = schema.__metadata__[0]
    shape = tuple(int(name) if name.isdigit() else sizes[name] for name in spec.dims)
    return nasty(shape, rng, odd=0.02 if rng.random() < 0.3 else 0.0)


def _nasty_field(name: str, schema: Any, sizes: Any, makers: Mapping[str, Maker], rng: np.random.Generator) -> Tree:
    """A nasty value for one field of a message, by its own maker where there is one."""
    return makers[name](rng, sizes) if name in makers else nasty_tree(schema, sizes, makers, rng)


def nasty(shape: tuple[int, ...], rng: np.random.Generator, odd: float) -> np.ndarray:
    """Numbers of one magnitude out of many, some replaced by odd ones."""
    magnitude = 10.0 ** rng.choice([rng.uniform(-1, 1), rng.uniform(-8, 8)])
    numbers = magnitude * rng.normal(size=shape)
    return np.where(rng.random(shape) < odd, rng.choice(ODD, size=shape), numbers)
