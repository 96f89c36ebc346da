"""Several searches that share their SUMs: each is a generator that yields what it asks about and is sent the totals."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from unpooled.maths.mixture import Params, Stats


class Question(NamedTuple):
    """Mixtures to ask about, and the shape of each."""

    params: tuple[Params, ...]
    shapes: list[str]


Answers = Callable[[tuple[Params, ...], list[str]], tuple[Stats, ...]]  # totals over all rows
Search = Generator[Question, Sequence[Stats], Any]


def together(answers: Answers, searches: Sequence[Search]) -> list[Any]:
    """What each search returns; in every SUM all that have not ended are asked for at once."""
    results: list[Any] = [None] * len(searches)
    waiting = _advance(searches, dict.fromkeys(range(len(searches))), results)
    while waiting:
        asked = tuple(params for question in waiting.values() for params in question.params)
        shapes = [shape for question in waiting.values() for shape in question.shapes]
        left = iter(answers(asked, shapes))
        totals = {i: [next(left) for _ in question.params] for i, question in waiting.items()}
        waiting = _advance(searches, totals, results)
    return results


def _advance(searches: Sequence[Search], totals: dict[int, Any], results: list[Any]) -> dict[int, Question]:
    """The next question of each search that was waiting for these totals; results of those that end are kept."""
    waiting = {}
    for i, found in totals.items():
        try:
            waiting[i] = searches[i].send(found)
        except StopIteration as end:
            results[i] = end.value
    return waiting
