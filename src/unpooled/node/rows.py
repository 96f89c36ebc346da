"""What a node's source gives: its rows, whole or in parts, and a source in memory. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from unpooled.arrays import is_torch, to_numpy
from unpooled.client import Client
from unpooled.data.check import Profile, profile
from unpooled.data.schema import Wanted
from unpooled.node.preparation import Preparation

NUMBERS_ALONE = Wanted()


class Rows(NamedTuple):
    """What a source gives: the parts of a table (one, unless it is larger than memory), columns in the order asked for."""

    parts: Callable[[], Iterator[Client]]
    n_rows: int
    whole: bool  # whether `parts` gives one part


class Source:
    """A node's data, in memory."""

    def __init__(self, client: Client, columns: Sequence[str] | None = None):
        """A source in memory: one client and the names of its columns."""
        self.client, self.columns, self.label = client, None if columns is None else list(columns), client.y is not None
        self.preparation = Preparation()

    def open(self, columns: Sequence[str] | None, wanted: Wanted = NUMBERS_ALONE) -> Rows:
        """The rows with these columns in this order; they are encoded already."""
        client = self.client
        if columns is not None and self.columns is not None and list(columns) != self.columns:
            x = client.x[:, [self.columns.index(c) for c in columns]]
            # the layout decides the last bits
            client = replace(client, x=x if is_torch(x) else np.ascontiguousarray(x))
        return Rows(lambda: iter([client]), len(client.w), True)

    def profile(self, columns: Sequence[str], wanted: Wanted, floor: int) -> Profile:
        """What a check is told of the columns."""
        names = self.columns or []
        held = {c: to_numpy(self.client.x[:, names.index(c)]) for c in columns}
        return profile(self.client.name, held, floor=floor)
