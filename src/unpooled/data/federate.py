"""From data to a federation: a dict, a list, a frame, a folder of files or pooled rows become the clients of a `Local`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unpooled.data.tables import clients_from
from unpooled.errors import BadParameter
from unpooled.federation import Federation, is_federation
from unpooled.local import Local


def federate(
    data: Any,
    y: Any = None,
    *,
    by: Any = None,
    label: str | None = None,
    sample_weight: Any = None,
    columns: Sequence[str] | None = None,
    **engine: Any,
) -> Local:
    """A `Local` federation from a dict or list of clients' data, pooled rows and `by=`, or a folder of files (one a client).

    `columns` names the features wanted of files or frames; by default all columns that have no other role.
    Options of `Local` (mode, threads, min_clients, stack_cells, stack_padding) pass through.
    """
    table = clients_from(data, y, by=by, label=label, sample_weight=sample_weight, columns=columns)
    fed = Local(table.clients, **engine)
    fed.columns = table.columns
    return fed


def as_federation(data: Any, y: Any = None, **roles: Any) -> Federation:
    """`data` itself when it is a federation, else its clients in this process."""
    if not is_federation(data):
        return federate(data, y, **roles)
    given = [name for name, value in {"y": y, **roles}.items() if value is not None]
    if given:
        raise BadParameter(
            f"{given[0]}= was given beside a federation, whose clients hold their own: give it to federate()"
        )
    return data
