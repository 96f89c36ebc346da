"""`Followed(fed)`: sends every node the totals of earlier rounds, so that it can compute which question the study asks next.

With each question a node gets a letter (bytes of a layer for one node) with the totals that it does not have yet. With a folder, a total
is on disk before it is used: a resumed run reads it from there instead of asking again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unpooled import store, wire
from unpooled.client import KEYS, Ask, digest
from unpooled.errors import RunError
from unpooled.federation import Exchange, Federation, Layer
from unpooled.layers.secure import SecureSum
from unpooled.tree import Tree

NAME = "study"  # under which nodes find this layer's letters


class Followed(Layer):
    """A federation whose nodes get the totals of every round and so can check each question against the study.

    Parameters
    ----------
    inner : Federation
        The federation to wrap.
    folder : Path, default=None
        Where totals are kept, one file per round; None keeps them in memory.
    """

    is_followed = True  # what models ask for; nodes compute each question without the other layers of the coordinator

    def __init__(self, inner: Federation, folder: Path | None = None):
        """Wrap `inner`; totals are kept in `folder`, so that a run which was killed asks nothing twice."""
        super().__init__(inner)
        self.folder = folder
        self._masked = inner if isinstance(inner, SecureSum) else None
        self._totals: dict[int, dict[str, Any]] = {}  # round -> what was asked, the total, the total as nodes check it
        self._heard: dict[str, int] = {}  # node -> the last round it answered; it knows all totals before

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """Ask once and keep the total; after a restart the kept total is given again."""
        round = self.journal.round + 1
        asked = digest(ask, down).hex()
        kept = self._kept(round)
        if kept is not None:
            return self._again(round, ask, asked, kept)
        total = self.inner.sum(self._telling(ask, round), down)
        kept = {"asked": asked, "question": ask.name, "total": total, **self._proof(total)}
        self._keep(round, kept | {"inner": self.inner.snapshot()})
        self._hear(round)
        return total

    def tell(self, ask: Ask, down: Tree) -> None:
        """Pass the message on together with the totals that nodes have not heard of."""
        round = self.journal.round + 1
        self.inner.tell(self._telling(ask, round), down)
        self._hear(round)

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Pass the question on together with the totals that nodes have not heard of."""
        if ask.kind == KEYS:
            return self.inner.gather(ask, down)
        return self.inner.gather(self._telling(ask, self.journal.round + 1), down)

    def _proof(self, total: Tree) -> dict[str, Any]:
        """`raw`, the total in the form that nodes can check, and the answers it was computed from."""
        if self._masked is not None:
            return {"raw": self._masked.total, "answers": {"hub": self._masked.evidence}}
        return {"raw": total, "answers": {"plain": dict(self.journal.answers)}}

    # ---- letters ----

    def _telling(self, ask: Ask, round: int) -> Ask:
        """The question with the totals that each node lacks; nodes that lack the same get the same bytes."""
        written: dict[int, bytes] = {}
        letters = {}
        for name in self.names:
            first = self._heard.get(name, 1)
            if first not in written:
                rounds = [r for r in range(first, round) if self._kept(r) is not None]
                written[first] = wire.pack({}, {str(r): self._kept(r)["raw"] for r in rounds})  # type: ignore[index]
            letters[name] = written[first]
        return ask.telling(NAME, letters)

    def _hear(self, round: int) -> None:
        """Clients that answered have all totals before this round; those that refused are sent everything again."""
        for name in self.journal.answered:
            self._heard[name] = round
        for refusal in self.journal.refusals:
            if refusal.round == round:
                self._heard.pop(refusal.client, None)

    # ---- totals ----

    def restore(self, saved: Tree) -> None:
        """Restore the inner federation; a run that starts afresh (`saved` is empty) deletes the kept totals."""
        super().restore(saved)
        self._totals = {}
        self._heard = {}
        self.journal.keep_answers = self._masked is None
        if not saved and self.folder is not None:
            for path in self.folder.glob("*.zip"):
                path.unlink()

    def _again(self, round: int, ask: Ask, asked: str, kept: dict[str, Any]) -> Tree:
        """The kept total of a round that was asked before the run was stopped."""
        if kept["asked"] != asked:
            raise RunError(
                f"the total of round {round} belongs to another question: the model or its version changed, start a new run"
            )
        self.inner.restore(kept["inner"])  # which round each client's state belongs to, as it was after this total
        self.journal.round = round
        self.journal.exchanges.append(Exchange(round, ask.name, ask.kind, 0, 0, 0, 0, 0.0, "kept from before"))
        return kept["total"]

    def _path(self, round: int) -> Path | None:
        """The file of a round's total."""
        return None if self.folder is None else self.folder / f"{round:08}.zip"

    def _kept(self, round: int) -> dict[str, Any] | None:
        """What is known of a round, from memory or from its file; None when it was not asked yet."""
        path = self._path(round)
        if round not in self._totals and path is not None and path.exists():
            self._totals[round] = store.read(path)
        return self._totals.get(round)

    def _keep(self, round: int, kept: dict[str, Any]) -> None:
        """Keep what was asked in a round and its total."""
        self._totals[round] = kept
        path = self._path(round)
        if path is not None:
            store.write(path, kept)
