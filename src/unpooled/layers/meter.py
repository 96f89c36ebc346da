"""The layer `Metered`: counts bytes by question and can stop a run at a budget. Sends nothing by itself."""

from __future__ import annotations

from unpooled.client import Ask
from unpooled.errors import BadParameter, RunError
from unpooled.federation import Federation, Layer
from unpooled.parameters import is_number
from unpooled.tree import Tree


class Metered(Layer):
    """Count exchanges and bytes, and refuse to go beyond a budget.

    Parameters
    ----------
    inner : Federation
        Whose exchanges are counted.
    budget : float, default=inf
        Bytes that may be sent, both ways together. The exchange after the one that used it up is refused with a RunError.

    Attributes
    ----------
    rounds : int
        Number of exchanges.
    bytes_up, bytes_down : int
        Bytes sent by clients, and to clients.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> sites = {name: np.random.default_rng(i).normal(size=(50, 2)) for i, name in enumerate("abc")}
    >>> fed = up.Metered(up.federate(sites))
    >>> _ = up.GaussianMixture(2, random_state=0, max_iter=5, tol=0).fit(fed)
    >>> times, down, sent = fed.by_question()["mixture.e_step"]
    >>> times, sent <= fed.bytes_up
    (5, True)
    """

    def __init__(self, inner: Federation, *, budget: float = float("inf")):
        super().__init__(inner)
        if not (is_number(budget) and budget > 0):
            raise BadParameter(f"budget={budget!r} must be above 0: it is the bytes a run may send, both ways")
        self.budget = budget

    @property
    def rounds(self) -> int:
        """Number of exchanges."""
        return len(self.journal.exchanges)

    @property
    def bytes_up(self) -> int:
        """Bytes sent by clients."""
        return sum(e.bytes_up for e in self.journal.exchanges)

    @property
    def bytes_down(self) -> int:
        """Bytes sent to clients."""
        return sum(e.bytes_down for e in self.journal.exchanges)

    def by_question(self) -> dict[str, tuple[int, int, int]]:
        """Totals by question: {name: (times asked, bytes down, bytes up)}."""
        table: dict[str, tuple[int, int, int]] = {}
        for e in self.journal.exchanges:
            times, down, up = table.get(e.question, (0, 0, 0))
            table[e.question] = (times + 1, down + e.bytes_down, up + e.bytes_up)
        return table

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Ask, unless the budget of bytes is spent."""
        self._within_budget()
        return super().sum(ask, down)

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Ask, unless the budget of bytes is spent."""
        self._within_budget()
        return super().gather(ask, down)

    def tell(self, ask: Ask, down: Tree) -> None:
        """Tell, unless the budget of bytes is spent."""
        self._within_budget()
        super().tell(ask, down)

    def _within_budget(self) -> None:
        """Stop the run when as many bytes were sent as the budget allows."""
        spent = self.bytes_up + self.bytes_down
        if spent >= self.budget:
            raise RunError(
                f"{spent} bytes were sent in {self.rounds} exchanges, budget={self.budget:.0f}: raise it or compress"
            )
