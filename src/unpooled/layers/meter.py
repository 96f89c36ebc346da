"""Counts what crosses, question by question, and can hold a run to a budget. Sends nothing of its own."""

from __future__ import annotations

from unpooled.client import Ask
from unpooled.errors import BadParameter, RunError
from unpooled.federation import Federation, Layer
from unpooled.parameters import is_number
from unpooled.tree import Tree


class Metered(Layer):
    """A federation that reads its own meter: `rounds`, `bytes_up`, `bytes_down`, `by_question()`.

    With `budget=` (bytes, both ways) the exchange after the one that used it up is refused.
    """

    def __init__(self, inner: Federation, *, budget: float = float("inf")):
        super().__init__(inner)
        if not (is_number(budget) and budget > 0):
            raise BadParameter(f"budget={budget!r} must be above 0: it is the bytes a run may send, both ways")
        self.budget = budget

    @property
    def rounds(self) -> int:
        return len(self.journal.exchanges)

    @property
    def bytes_up(self) -> int:
        return sum(e.bytes_up for e in self.journal.exchanges)

    @property
    def bytes_down(self) -> int:
        return sum(e.bytes_down for e in self.journal.exchanges)

    def by_question(self) -> dict[str, tuple[int, int, int]]:
        """question -> (times asked, bytes down, bytes up)."""
        table: dict[str, tuple[int, int, int]] = {}
        for e in self.journal.exchanges:
            times, down, up = table.get(e.question, (0, 0, 0))
            table[e.question] = (times + 1, down + e.bytes_down, up + e.bytes_up)
        return table

    def sum(self, ask: Ask, down: Tree) -> Tree:
        self._within_budget()
        return super().sum(ask, down)

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        self._within_budget()
        return super().gather(ask, down)

    def tell(self, ask: Ask, down: Tree) -> None:
        self._within_budget()
        super().tell(ask, down)

    def _within_budget(self) -> None:
        spent = self.bytes_up + self.bytes_down
        if spent >= self.budget:
            raise RunError(
                f"{spent} bytes were sent in {self.rounds} exchanges, budget={self.budget:.0f}: raise it or compress"
            )
