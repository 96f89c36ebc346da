"""A federation whose clients must all stay: what is sent is what the model sends, and a client that leaves on the way ends the run.

Most models of this library can do without a client in a round. A search by counts, or a likelihood whose parts come from several SUMs,
cannot: parts of different patients do not fit together. So the run stops with a sentence and does not go on with a wrong number.
"""

from __future__ import annotations

from unpooled.client import Ask
from unpooled.errors import TooFewClients
from unpooled.federation import Federation, Layer
from unpooled.tree import Tree


class Steady(Layer):
    """A federation that refuses a total which more, or fewer, clients are absent from than from the first one."""

    def __init__(self, inner: Federation, absent: int | None = None):
        super().__init__(inner)
        self.absent = absent  # clients without an answer; None: as many as in the first SUM

    def sum(self, ask: Ask, down: Tree) -> Tree:
        total = super().sum(ask, down)
        asked, answered = next(
            (e.asked, e.answered) for e in reversed(self.journal.exchanges) if e.question == ask.name
        )
        first = asked - answered if self.absent is None else self.absent
        if asked - answered != first:
            raise TooFewClients(
                f"{answered} of {asked} clients answered {ask.name} and {asked - first} the first question: all have to stay, "
                "since these sums must be of the same rows; start again with those that do"
            )
        self.absent = first
        return total
