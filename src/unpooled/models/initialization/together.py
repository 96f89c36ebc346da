"""Several searches that share their SUMs: each is a generator that yields a `Question` and is sent the totals.

There are two SUMs per set of cells (`floored`): the first counts the rows of each cell; the second sums over the rows of the cells that
have at least `LEAST_ROWS`, in a study at least its `min_rows_per_component`. The other cells are left out of the second SUM, and their
rows count for the cells next to them: so no total describes fewer rows than that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.federation import Federation, least_rows
from unpooled.maths import mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.tree import message

# rows over all clients that a cell needs before more than its count is asked for; the default policy's floor
LEAST_ROWS = 5.0
BLOCK = 4096  # rows that are counted at a time
MOST = 16  # mixtures in one SUM at most, as the default policy allows


@message("initialization.Counts")
class Counts(NamedTuple):
    """The number of rows whose most probable point each one is."""

    n: Float[Array, "k", ">=0 rows"]


class Question(NamedTuple):
    """Mixtures to ask about, the shape of each, and whether counts alone are asked for."""

    params: tuple[Params, ...]
    shapes: list[str]
    counts: bool = False


Answers = Callable[[tuple[Params, ...], list[str], bool], tuple[Any, ...]]  # totals over all rows: Stats, or Counts
Search = Generator[Question, Sequence[Any], Any]


class Totals:
    """Totals over a federation, as `Answers`: in a study, a count below its `min_rows_per_component` is taken for none.

    Parameters
    ----------
    fed : Federation
        Whose rows are summed over.
    ask : callable
        (mixtures, shapes, whether counts only) -> the totals: one SUM.
    """

    def __init__(self, fed: Federation, ask: Answers):
        """Ask for totals in this way, under the study's floor if there is one."""
        self.least = float(least_rows(fed))  # 0 outside of studies
        self._ask = ask

    def __call__(self, params: tuple[Params, ...], shapes: list[str], counts: bool) -> tuple[Any, ...]:
        """The totals; small counts of a study are 0, but for the largest of a mixture."""
        found = self._ask(params, shapes, counts)
        return tuple(map(self._without_few, found)) if counts and self.least > LEAST_ROWS else found

    def _without_few(self, found: Counts) -> Counts:
        """The counts without those that the study does not sum over."""
        n = to_numpy(found.n)
        return Counts(np.where((n >= self.least) | (n == n.max()), n, 0.0))


def floor_of(answers: Answers) -> float:
    """What a study demands of the rows behind a number, as far as these answers know; 0 outside of studies."""
    return getattr(answers, "least", 0.0)


# ---- a client's side, for the questions of several models ----


def count_rows(kernels: Params, x: Array, w: Array, shape: str) -> Counts:
    """For how many rows each point is the most probable. Rows count by their weight, but one row never as LEAST_ROWS.

    Whole rows are counted, not responsibilities: those would reveal the position of a row that is alone there.
    """
    m = len(kernels.weights)
    counted = whole_rows(to_numpy(w))
    n = np.zeros((*counted.shape[:-1], m))
    for first in range(0, counted.shape[-1], BLOCK):
        part = slice(first, first + BLOCK)
        likeliest = to_numpy(mixture.log_joint(kernels, x[..., part, :], shape)).argmax(-1)
        n += ((likeliest[..., None] == np.arange(m)) * counted[..., part, None]).sum(-2)
    return Counts(n)


def whole_rows(w: np.ndarray) -> np.ndarray:
    """What rows of these weights (..., n) count in a count of whole rows: at least 1, and one row never as many as LEAST_ROWS."""
    return np.where(w > 0, w.clip(1.0, LEAST_ROWS - 1), 0.0)


# ---- no sums over cells with few rows ----


def floored(params: Sequence[Params], shapes: list[str]) -> Search:
    """Totals of these cells, zeros for cells with few rows: a SUM of counts, then one of moments over the other cells."""
    held = yield from held_enough(params, shapes)
    asked = tuple(without(p, kept, shape) for p, kept, shape in zip(params, held, shapes))
    totals = yield Question(asked, shapes)
    return [_whole(up, kept, shape) for up, kept, shape in zip(totals, held, shapes)]


def held_enough(params: Sequence[Params], shapes: list[str]) -> Search:
    """Which components of each mixture hold enough rows to be asked about, (k,) bool: one SUM of counts."""
    counted = yield Question(tuple(params), shapes, counts=True)
    return [_enough(to_numpy(found.n)) for found in counted]


def _enough(n: np.ndarray) -> np.ndarray:
    """Which cells are asked about, (m,) bool; if none holds enough rows, the largest, which then holds all."""
    held = n >= LEAST_ROWS
    return held if held.any() else np.arange(len(n)) == n.argmax()


def without(params: Params, kept: np.ndarray, shape: str) -> Params:
    """The mixture of the components that are kept: they hold the rows of the others too."""
    weights = params.weights[kept]
    return Params(weights / weights.sum(), params.means[kept], params.covs if shape == "tied" else params.covs[kept])


def _whole(up: Stats, kept: np.ndarray, shape: str) -> Stats:
    """The totals of all cells in their order, zeros for cells that were left out."""

    def filled(a: Any) -> np.ndarray:
        """Totals of all cells, 0 where a cell was not asked about."""
        found = np.zeros((len(kept), *np.shape(a)[1:]))
        found[kept] = to_numpy(a)
        return found

    return up._replace(n=filled(up.n), x=filled(up.x), xx=to_numpy(up.xx) if shape == "tied" else filled(up.xx))


# ---- shared SUMs ----


def together(answers: Answers, searches: Sequence[Search]) -> list[Any]:
    """Run the searches and return their results; every SUM serves all searches that have not ended."""
    results: list[Any] = [None] * len(searches)
    waiting = _advance(searches, dict.fromkeys(range(len(searches))), results)
    while waiting:
        found: dict[int, list[Any]] = {}
        for counts in (True, False):
            some = {i: question for i, question in waiting.items() if question.counts == counts}
            found |= _asked_at_once(answers, some, counts)
        waiting = _advance(searches, {i: found[i] for i in waiting}, results)
    return results


def _asked_at_once(answers: Answers, questions: dict[int, Question], counts: bool) -> dict[int, list[Any]]:
    """The totals for each of these questions, in as few SUMs as possible."""
    asked = [(p, s) for question in questions.values() for p, s in zip(question.params, question.shapes)]
    totals: list[Any] = []
    for first in range(0, len(asked), MOST):
        params, shapes = zip(*asked[first : first + MOST])
        totals += answers(tuple(params), list(shapes), counts)
    left = iter(totals)
    return {i: [next(left) for _ in question.params] for i, question in questions.items()}


def _advance(searches: Sequence[Search], totals: dict[int, Any], results: list[Any]) -> dict[int, Question]:
    """The next question of each search that was waiting for these totals; results of those that end are kept."""
    waiting = {}
    for i, found in totals.items():
        try:
            waiting[i] = searches[i].send(found)
        except StopIteration as end:
            results[i] = end.value
    return waiting
