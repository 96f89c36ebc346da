"""What the coordinator knows of a run at its nodes: its name, which nodes have begun it, which round's state each has.

Sends nothing; the state itself stays at the nodes.
"""

from __future__ import annotations

import secrets

from unpooled.tree import Tree

KEPT_SNAPSHOTS = 3  # nodes keep the states that this many last snapshots may return to


class Run:
    """Names one run and tracks, per client, the round whose state its next answer starts from.

    Attributes
    ----------
    name : str
        A random name that nodes store state under.
    base : dict of str to int
        client name -> the last round whose answer changed the client's state.
    begun : set of str
        The clients that know the run and its columns.
    """

    def __init__(self) -> None:
        """A run that no node has begun."""
        self.restore({})

    def restore(self, saved: Tree) -> None:
        """Continue from what `snapshot` returned; an empty value starts a new run."""
        base = saved["base"] if saved else {}
        self.name = saved["run"] if saved else secrets.token_hex(16)
        self.base: dict[str, int] = {name: int(round) for name, round in base.items()}
        self.begun: set[str] = set()
        self._snapshots: list[dict[str, int]] = [dict(self.base)]

    def snapshot(self, names: list[str]) -> Tree:
        """What a checkpoint needs; the state itself stays at the nodes."""
        self._snapshots = [*self._snapshots, dict(self.base)][-KEPT_SNAPSHOTS:]
        return {"run": self.name, "base": dict(self.base), "names": list(names)}

    def oldest_round(self, name: str) -> int:
        """The oldest round whose state of this client a checkpoint may still return to."""
        return min(s.get(name, 0) for s in self._snapshots)
