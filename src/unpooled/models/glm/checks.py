"""What is refused before any round: targets that are no numbers, an offset that is no column. Nothing is sent."""

from __future__ import annotations

from unpooled.arrays import to_numpy
from unpooled.errors import BadData, BadParameter, suggest
from unpooled.federation import Federation
from unpooled.parameters import at_least


def check_numeric_targets(fed: Federation) -> None:
    """Refuse targets that are no column of numbers, where the clients are in this process."""
    for c in fed.here():
        if c.y is None:
            raise BadData(f"client {c.name!r} has no targets: requires y to be passed, but the target y is None")
        y = to_numpy(c.y)
        if y.dtype.kind not in "fiub" or y.ndim != 1:
            kind = f"{y.dtype} of shape {y.shape}"
            raise BadData(
                f"client {c.name!r} has targets that are not one number per row ({kind}): give numeric y, or use LogisticRegression"
            )


def offset_index(offset: str | int | None, columns: list[str] | None) -> int:
    """Which column is the offset, -1 for none."""
    if offset is None:
        return -1
    if isinstance(offset, str):
        if offset not in (columns or ()):
            raise BadParameter(f"offset={offset!r} is not a column: {suggest(offset, columns or ())}")
        return list(columns or ()).index(offset)
    at_least("offset", offset, 0)
    return int(offset)
