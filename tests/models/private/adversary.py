"""Tests a declared sensitivity with extreme parameters and rows: how far can one row change the answer? Sends nothing.

A tool for whoever declares a question private. Parameters are drawn from the question's annotations: numbers of all magnitudes, zeros,
infinities, NaN. It can find a mistake; it cannot prove that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.client import Ask, Client
from unpooled.tree import Tree

EXTREME = (0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-300, 1.0, -1.0)
Maker = Callable[[np.random.Generator, dict[str, int]], np.ndarray]


class Found(NamedTuple):
    """The outcome of many tries."""

    largest: float  # L2 norm of the largest answer of one row
    answered: int  # tries that were answered; the others had parameters that cannot be used
    told: int  # refusals that depended on the row, and so revealed something about it: must be 0


def attack(
    question: Ask, tries: int, rng: np.random.Generator, *, width: int = 3, target: bool = False, **makers: Maker
) -> Found:
    """The largest change of the answer by one row, over many pairs of extreme parameters and rows.

    Parameters
    ----------
    question : Ask
        A SUM that adds over rows, with its options.
    tries : int
        Pairs of parameters and rows.
    rng : numpy.random.Generator
        Source of the parameters and rows.
    width : int, default=3
        Columns of a row.
    target : bool, default=False
        Whether rows have targets; parameters then have one column more.
    **makers : callable
        `(rng, sizes) -> array` for parameters by name that must not be arbitrary, such as covariances.

    Returns
    -------
    found : Found
        The largest change, and how many tries were answered or refused because of the row.
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
    """A client with one row of any magnitude, sometimes with missing values or an invalid weight."""
    x = nasty((1, width), rng, odd=0.05)
    x = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    y = nasty((1,), rng, odd=0.05) if target else None
    w = np.array([rng.choice([1.0, 1.0, 1.0, 0.3, 7.0, -2.0, np.inf, np.nan])])
    return Client("one", x, y, w)


def nasty_tree(schema: Any, sizes: Mapping[str, int], makers: Mapping[str, Maker], rng: np.random.Generator) -> Tree:
    """A random value with the structure and shapes of the annotations `schema`; `sizes` gives the length of each dimension."""
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
    """Normal numbers of a random magnitude; each is replaced by an EXTREME one with probability `odd`."""
    magnitude = 10.0 ** rng.choice([rng.uniform(-1, 1), rng.uniform(-8, 8)])
    numbers = magnitude * rng.normal(size=shape)
    return np.where(rng.random(shape) < odd, rng.choice(EXTREME, size=shape), numbers)
