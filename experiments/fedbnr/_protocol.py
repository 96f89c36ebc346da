"""The thesis's protocol on five UCI sets: an 8:1:1 split, training rows sorted by their most telling column and dealt in chunks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.data import partition
from unpooled.datasets import shared

SETS = ("skillcraft", "sml", "parkinsons", "bike", "ccpp")
SML_TARGET = "Temperature_Habitacion_Sensor"
# with these the target is nearly given away
SML_DROPPED = ("Temperature_Comedor_Sensor", "Temperature_Exterior_Sensor")


class Split(NamedTuple):
    """Rows to learn from (training and validation rows), rows to test on, and who holds which."""

    x: np.ndarray  # (n, d)
    y: np.ndarray  # (n,)
    held: np.ndarray  # (n,) bool: the validation rows among them
    owner: np.ndarray  # (n,) client of each row
    x_test: np.ndarray
    y_test: np.ndarray

    def clients(self, rows: np.ndarray | None = None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """(X, y) by client, of the chosen rows."""
        rows = np.ones(len(self.y), dtype=bool) if rows is None else rows
        names = [f"client-{c:03d}" for c in range(self.owner.max() + 1)]
        chosen = {n: rows & (self.owner == c) for c, n in enumerate(names)}
        return {n: (self.x[mask], self.y[mask]) for n, mask in chosen.items() if mask.any()}


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of a set as the thesis used it; columns that never vary are left out."""
    data = {
        "skillcraft": shared.skillcraft,
        "sml": lambda: shared.sml2010(SML_TARGET),
        "parkinsons": shared.parkinsons,
        "bike": shared.seoul_bike,
        "ccpp": shared.ccpp,
    }[name]()
    keep = [j for j, c in enumerate(data.columns) if c not in SML_DROPPED and np.ptp(data.x[:, j]) > 0]
    y = np.asarray(data.y, dtype=np.float64)
    y = (y - y.mean()) / y.std() if name == "bike" else y  # its RMSE is in standard deviations
    return data.x[:, keep], y


def split(name: str, seed: int, clients: int) -> Split:
    """8:1:1; validation rows lie at the clients too, dealt like the others, and are only used to choose and to recalibrate."""
    x, y = load(name)
    order = np.random.default_rng([seed, 7]).permutation(len(y))
    tenth = len(y) // 10
    test, val, train = order[:tenth], order[tenth : 2 * tenth], order[2 * tenth :]
    learn = np.concatenate([train, val])
    column = partition.most_correlated(x[train], y[train])
    owner = partition.sorted_chunks(x[learn], clients=clients, chunks=2, column=column, random_state=seed)
    held = np.arange(len(learn)) >= len(train)
    return Split(x[learn], y[learn], held, owner, x[test], y[test])
