"""A federation whose clients must all stay: what is sent is what the model sends, and a client that leaves on the way ends the run.

Most models of this library can do without a client in a round. A search by counts, or a likelihood whose parts come from several SUMs,
cannot: parts of different patients do not fit together. Better to stop with a sentence than to go on with a wrong number.
"""

from __future__ import annotations

from unpooled.client import Ask
from unpooled.errors import TooFewClients
from unpooled.federation import Federation, Layer
from unpooled.tree import Tree


class Steady(Layer):
    """A federation that refuses a total of fewer, or more, clients than the first one had."""

    def __init__(self, inner: Federation, clients: int = 0):
        super().__init__(inner)
        self.clients = clients  # 0: as many as answer first

    def sum(self, ask: Ask, down: Tree) -> Tree:
        total = super().sum(ask, down)
        answered = next(e.answered for e in reversed(self.journal.exchanges) if e.question == ask.name)
        self.clients = self.clients or answered
        if answered != self.clients:
            raise TooFewClients(
                f"{answered} clients answered {ask.name} and {self.clients} the first question: all have to stay for sums "
                "that fit together; start again with those that do"
            )
        return total
