"""Rows that are not visits, and cells that a table does not have, are refused. Sends nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.errors import BadData
from unpooled.federation import Federation
from unpooled.models.fedmissem.questions import Description, valid_visits


def refuse_bad_visits(fed: Federation, found: Description, family: str, trials: int) -> None:
    """Refuse rows that are not visits; where clients are in this process, the first with such rows is named."""
    if not float(found.bad):
        return
    counts = {c.name: valid_visits(c, family, trials)[1] for c in fed.here()}
    who = "all clients together"
    bad = float(found.bad)
    rows = float(found.rows)
    for name, valid in counts.items():
        if not valid.all():
            who = f"client {name!r}"
            bad = float((~valid).sum())
            rows = float(len(valid))
            break
    wants = {"auto": "a number", "gaussian": "a number", "binomial": f"a count up to trials={trials}"}
    wanted = wants.get(family, "a count" if family == "geometric" else "not below 0")
    raise BadData(
        f"{bad:.0f} of {rows:.0f} rows of {who} are not visits: "
        f"each is (site, date, value), sites and dates whole numbers from 0, the value {wanted}"
    )


def cells_of(X: Any, ends: tuple[int, int]) -> np.ndarray:
    """(n, 2) whole numbers: sites and dates of a table of the size `ends`."""
    x = np.asarray(X, np.float64)
    if x.ndim != 2 or x.shape[1] < 2:
        raise BadData(f"cells are rows of (site, date), got shape {x.shape}: give two columns")
    x = x[:, :2]
    bad = ~((x >= 0) & (x < ends) & (x == np.floor(x))).all(axis=1)
    if bad.any():
        site, date = x[bad.argmax()]
        raise BadData(
            f"row {bad.argmax()} is (site {site:g}, date {date:g}), no cell of the {ends[0]} sites and {ends[1]} dates: "
            "give whole numbers from 0"
        )
    return x.astype(np.int64)
