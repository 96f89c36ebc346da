"""Which column is of which kind, and where it lies in the blocks of a mixed mixture. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from unpooled.errors import BadParameter
from unpooled.parameters import one_of

GAUSSIAN = ("real", "positive", "date")  # positive: its logarithm is Gaussian
DISCRETE = ("binary", "category", "ordered")  # codes 0, 1, ... of levels
COUNT = ("count",)
UNUSED = ("id", "ignored")
KINDS = (*GAUSSIAN, *DISCRETE, *COUNT, *UNUSED)
MAX_LEVELS = 256  # of a column whose levels are not counted yet


class Columns:
    """The kinds of an encoded table's columns, and how many levels each discrete one has.

    An encoded table is a float array: numbers unchanged, levels as their codes 0, 1, ..., NaN where a value is missing.
    """

    def __init__(self, kinds: Sequence[str], levels: Sequence[int]):
        """Kinds of the columns, and levels of the discrete ones (0 for others)."""
        self.kinds = tuple(kinds)
        self.levels = tuple(int(n) for n in levels)

    @classmethod
    def of(cls, option: Mapping[str, Any]) -> Columns:
        """From the option of a question, see `option`."""
        return cls(option["kinds"], option["levels"])

    @property
    def option(self) -> dict[str, Any]:
        """As it travels with a question."""
        return {"kinds": list(self.kinds), "levels": list(self.levels)}

    def _which(self, kinds: Sequence[str]) -> np.ndarray:
        """Places of the columns of these kinds."""
        return np.array([j for j, kind in enumerate(self.kinds) if kind in kinds], dtype=int)

    @cached_property
    def gaussian(self) -> np.ndarray:
        """Columns of the Gaussian block, (g,)."""
        return self._which(GAUSSIAN)

    @cached_property
    def is_log(self) -> np.ndarray:
        """Which columns of the Gaussian block are taken as logarithms, (g,) bool."""
        return np.array([self.kinds[j] == "positive" for j in self.gaussian], dtype=bool)

    @cached_property
    def discrete(self) -> np.ndarray:
        """Columns with levels, (c,)."""
        return self._which(DISCRETE)

    @cached_property
    def counts(self) -> np.ndarray:
        """Columns of counts, (m,)."""
        return self._which(COUNT)

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many levels each discrete column has, (c,)."""
        return np.array([self.levels[j] for j in self.discrete], dtype=int)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where the levels of each discrete column begin among all t levels, (c,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(int) if len(self.sizes) else self.sizes

    @cached_property
    def is_tilted(self) -> np.ndarray:
        """Which discrete columns are ordered with so many levels that two numbers describe a component, (c,) bool."""
        return np.array([self.kinds[j] == "ordered" and self.levels[j] > 3 for j in self.discrete], dtype=bool)

    @property
    def parts(self) -> list[slice]:
        """The levels of each discrete column among all t levels."""
        return [slice(a, a + n) for a, n in zip(self.starts.tolist(), self.sizes.tolist())]

    @property
    def t(self) -> int:
        """The number of level probabilities of one component."""
        return int(self.sizes.sum())


def given_columns(kinds: Any, levels: Any, schema: Any, d: int, names: Sequence[str]) -> Columns:
    """The columns as declared by parameters, else by a schema; otherwise "real", with -1 levels where these are not counted yet."""
    known = ["real"] * d if schema is None else list(schema.kinds)
    counted = [-1] * d if schema is None else [c.n_levels or -1 for c in schema]
    found = _by_column(kinds, known, names, "kinds")
    sizes = _by_column(levels, counted, names, "levels")
    for kind in found:
        one_of("a kind in kinds", kind, KINDS)
    if all(kind in UNUSED for kind in found):
        raise BadParameter("kinds leaves no column to fit: at least one must be other than 'id' and 'ignored'")
    return Columns(found, [_levels_of(kind, n, names[j]) for j, (kind, n) in enumerate(zip(found, sizes))])


def _levels_of(kind: str, given: int, name: str) -> int:
    """The number of levels of a column; one level is refused."""
    if kind == "binary":
        return 2
    if kind not in DISCRETE:
        return 0
    if given == 1 or given == 0:
        raise BadParameter(f"column {name!r} is of kind {kind!r} with {given} levels: leave it out")
    return int(given)


def _by_column(given: Any, otherwise: list[Any], names: Sequence[str], what: str) -> list[Any]:
    """One entry per column, from a list, or a dict by name or index."""
    if given is None:
        return otherwise
    if isinstance(given, Mapping):
        found = list(otherwise)
        for key, value in given.items():
            found[_index(key, names, what)] = value
        return found
    if len(given) != len(otherwise):
        raise BadParameter(f"{what} has {len(given)} entries but rows have {len(otherwise)} columns: give one for each")
    return list(given)


def _index(key: Any, names: Sequence[str], what: str) -> int:
    """The place of a column given by name or by place."""
    if str(key) in names:
        return list(names).index(str(key))
    if isinstance(key, int | np.integer) and 0 <= key < len(names):
        return int(key)
    raise BadParameter(f"{what} names column {key!r}, which is not there: use one of {', '.join(names[:10])}")
