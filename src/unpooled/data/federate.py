"""Federations from data: a dict, list, frame, folder of files or one table become the clients of a `Local`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from unpooled.data.tables import clients_from
from unpooled.errors import BadParameter, suggest
from unpooled.federation import Federation, is_federation
from unpooled.local import Local


def federate(
    data: Any,
    y: Any = None,
    *,
    by: Any = None,
    label: str | None = None,
    sample_weight: Any = None,
    columns: Sequence[str] | Mapping[str, Any] | str | None = None,
    schema: Mapping[str, Any] | None = None,
    sites: Mapping[str, Mapping[str, Any]] | None = None,
    **engine: Any,
) -> Local:
    """Make a federation in this process from the data of its clients.

    Parameters
    ----------
    data : dict, list, array, frame or path
        One entry per client: a dict or list of arrays, of (X, y) or (X, y, sample_weight) tuples, of frames (pandas, polars,
        pyarrow) or of files; a folder or glob of csv, csv.gz, parquet or npz files, one per client; or one table, with `by`
        to split it into clients. NaN is a missing value.
    y : dict, list, array, str or None, default=None
        Labels: one array per client, one array for a single table, or the name of a column.
    by : array-like, str or None, default=None
        The client of each row, or the column that holds it, where `data` is one table. None: the table is one client.
    label : str or None, default=None
        The column of labels; the same as a string for `y`.
    sample_weight : dict, list, array, str or None, default=None
        Row weights, given as `y` is.
    columns : sequence of str, dict, "union" or None, default=None
        The columns to use as features; None is every column that has no other role. "union" lets clients lack columns,
        which are then missing in all their rows. A dict gives the kinds of columns, as `schema` does.
    schema : dict or None, default=None
        Kinds of columns, with the keys of [columns] in a config: name to kind, or to a dict of kind, unit, levels, missing and
        other. Kinds: "real", "positive", "count", "binary", "category", "ordered", "date", "id", "ignored". What is not given is
        inferred from the values.
    sites : dict or None, default=None
        How single clients write columns, with the keys of a node's [data.columns]: client to column to its name there, or to a
        dict of name, unit, factor, levels and missing; False for a column that the client lacks.
    **engine
        Options of `Local`: n_jobs (threads that work on clients), mode, min_clients, stack_cells, stack_padding.

    Returns
    -------
    Local
        The federation, to be given to `fit` or wrapped in layers.

    Examples
    --------
    >>> import numpy as np, unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> fed = up.federate({"north": rng.normal(size=(30, 2)), "south": rng.normal(size=(50, 2))}, min_clients=2)
    >>> fed.names
    ['north', 'south']
    >>> up.PCA(n_components=1).fit(fed).n_samples_
    80

    One table with the client of each row:

    >>> up.federate(rng.normal(size=(4, 2)), by=["a", "b", "a", "b"]).names
    ['a', 'b']

    Frames with texts; one client measures in inches and calls the column by another name:

    >>> import pandas as pd
    >>> paris = pd.DataFrame({"height": [170.0, 181.0, 164.0], "sex": ["f", "m", "f"]})
    >>> boston = pd.DataFrame({"inches": [70.0, 65.0, None], "sex": ["m", "f", "f"]})
    >>> fed = up.federate(
    ...     {"paris": paris, "boston": boston},
    ...     columns={"height": {"unit": "cm"}},
    ...     sites={"boston": {"height": {"name": "inches", "unit": "in"}}},
    ... )
    >>> fed.schema["sex"].levels
    ('f', 'm')
    >>> fed.here()[1].x.tolist()
    [[177.8, 1.0], [165.1, 0.0], [nan, 0.0]]
    """
    roles: dict[str, Any] = {"by": by, "label": label, "sample_weight": sample_weight}
    _check_engine(engine)
    table = clients_from(data, y, **roles, columns=columns, schema=schema, sites=sites)
    fed = Local(table.clients, **engine)
    fed.columns = table.columns
    fed.schema = table.schema
    return fed


def _check_engine(engine: Mapping[str, Any]) -> None:
    """Refuse names that neither `federate` nor the engine knows."""
    if not engine:
        return
    own = [name for name in signature(federate).parameters if name not in ("data", "engine")]
    known = [*own, *(name for name in signature(Local).parameters if name != "clients")]
    for name in engine:
        if name not in known:
            raise BadParameter(f"federate has no parameter {name!r}: {suggest(name, known)}")


def as_federation(data: Any, y: Any = None, **roles: Any) -> Federation:
    """`data` itself if it is a federation, else a federation made of it in this process."""
    if not is_federation(data):
        return federate(data, y, **roles)
    given = [name for name, value in {"y": y, **roles}.items() if value is not None]
    if given == ["n_jobs"]:
        raise BadParameter("n_jobs= was given together with a federation, which has its own: give it to federate()")
    if given:
        raise BadParameter(
            f"{given[0]}= was given together with a federation, whose clients hold their own: give it to federate()"
        )
    return data
