"""A client's rows as survival data, and a first look at them: one SUM of counts and of the sums of every covariate.

Time and event come from two columns of the rows (`duration`, `event`) or from y: (n, 2) time and event, or (n,) times of events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation
from unpooled.models.column_names import column_index, dates, where_missing
from unpooled.parameters import above, one_of
from unpooled.tree import message


class Rows(NamedTuple):
    """Complete rows of weight above 0."""

    x: np.ndarray  # (n, k) covariates
    time: np.ndarray  # (n,)
    died: np.ndarray  # (n,) bool
    w: np.ndarray  # (n,)
    group: np.ndarray  # (n,) values of the column that groups rows; 0 without one


@message("survival.Look")
class Look(NamedTuple):
    """A first look at the rows."""

    rows: Float[Array, "", ">=0 rows"]  # complete rows; the sums below are over them too
    weight: Float[Array, "", ">=0 rows"]
    incomplete: Float[Array, "", ">=0 rows"]  # rows with a missing value
    negative: Float[Array, "", ">=0 rows"]  # rows whose time is below 0
    odd: Float[Array, "", ">=0 rows"]  # rows whose event is neither 0 nor 1
    events: Float[Array, "", ">=0 rows"]
    x: Float[Array, "k"]  # sum of w x


@client("survival.look", SUM, adds=True, batched=False)
def look(nothing: None, client: Client, *, columns: dict) -> Look:
    """Rows, events, and what is wrong with them: missing values, times below 0, events that are not 0 or 1."""
    x, time, event, group, w = _parts(client, columns)
    whole = _complete(x, time, event, group) & (w > 0)
    odd = whole & (event != 0) & (event != 1)
    return Look(
        rows=_count(whole),
        weight=np.asarray(w[whole].sum()),
        incomplete=_count((w > 0) & ~whole),
        negative=_count(whole & (time < 0)),
        odd=_count(odd),
        events=_count(whole & (event == 1)),
        x=w[whole] @ x[whole],
    )


def _count(which: np.ndarray) -> np.ndarray:
    """How many rows, as a float that can be added up."""
    return np.asarray(float(which.sum()))


def survival_rows(client: Client, columns: dict) -> Rows:
    """The complete rows of a client; times rounded to whole units if there is one."""
    x, time, event, group, w = _parts(client, columns)
    kept = _complete(x, time, event, group) & (w > 0)
    unit = columns["unit"]
    time = time if unit is None else np.round(time / unit) * unit
    return Rows(x[kept], time[kept], event[kept] == 1, w[kept], group[kept])


def _complete(x: np.ndarray, *columns: np.ndarray) -> np.ndarray:
    """Which rows have no missing value."""
    return ~(np.isnan(x).any(1) | np.isnan(np.stack(columns)).any(0))


def _parts(client: Client, columns: dict) -> tuple[np.ndarray, ...]:
    """Covariates, times, events, groups and weights, missing values included."""
    x = to_numpy(client.x).astype(np.float64, copy=False)
    w = to_numpy(client.w).astype(np.float64, copy=False)
    y = None if client.y is None else to_numpy(client.y).astype(np.float64).reshape(len(x), -1)
    time = _column(x, y, columns["duration"], 0, client.name)
    event = np.ones(len(x))
    if not _all_die(y, columns):
        event = _column(x, y, columns["event"], 1, client.name)
    group = np.zeros(len(x))
    if columns["by"] is not None:
        group = x[:, columns["by"]]
    covariates = x[:, :0]
    if columns["covariates"]:
        taken = [columns[role] for role in ("duration", "event", "by") if columns[role] is not None]
        covariates = np.delete(x, taken, axis=1)
    return covariates, time, event, group, w


def _all_die(y: np.ndarray | None, columns: dict) -> bool:
    """Whether there is no column of events: then every row is an event."""
    return columns["event"] is None and (columns["duration"] is not None or (y is not None and y.shape[1] == 1))


def _column(x: np.ndarray, y: np.ndarray | None, index: int | None, place: int, name: str) -> np.ndarray:
    """A column by its place in x, or by its place in y."""
    if index is not None:
        return x[:, index]
    if y is None or y.shape[1] <= place:
        raise BadData(f"client {name!r} has no times: give y as (time, event), or name columns by duration= and event=")
    return y[:, place]


# ---- the server's side of it ----


def columns_of(fed: Federation, model: Any, covariates: bool) -> dict[str, Any]:
    """Where times, events and groups are found, as options that travel with every question."""
    roles = {role: column_index(fed, role, getattr(model, role, None)) for role in ("duration", "event", "by")}
    taken = [j for j in roles.values() if j is not None]
    if len(set(taken)) < len(taken):
        raise BadParameter("duration=, event= and by= name the same column twice: each needs its own")
    unit = None if model.unit is None else float(model.unit)
    return {**roles, "unit": unit, "covariates": covariates}


def check_survival(fed: Federation, model: Any) -> None:
    """Refuse parameters that every survival model has, and data in this process without times."""
    one_of("missing", model.missing, ("refuse", "drop"))
    if model.unit is not None:
        above("unit", model.unit, 0)
    _check_times(model.times)
    _check_no_date(fed, model, columns_of(fed, model, False)["duration"])
    for c in fed.here():
        if model.duration is None and c.y is None:
            raise BadData(
                f"client {c.name!r} has no times: give y as (time, event), or name columns by duration= and event="
            )
        if c.y is not None and (to_numpy(c.y).dtype.kind not in "fiub" or (c.y.ndim == 2 and c.y.shape[1] > 2)):
            raise BadData(f"client {c.name!r} has a y that is not (time, event) in numbers: give two columns")


def _check_no_date(fed: Federation, model: Any, duration: int | None) -> None:
    """Refuse a column of dates as times: they would be days since 1970."""
    if duration is not None and fed.columns and fed.columns[duration] in dates(fed):
        raise BadParameter(
            f"duration={model.duration!r} is a column of dates: give the time since each patient's start, such as days from entry "
            "to the last visit"
        )


def _check_times(times: Any) -> None:
    """Refuse steps of time that do not rise."""
    if times is None:
        return
    try:
        grid = np.asarray(times, dtype=np.float64)
    except (TypeError, ValueError):
        grid = np.zeros((0, 0))
    if grid.ndim != 1 or not grid.size or not np.isfinite(grid).all() or (np.diff(grid) <= 0).any():
        raise BadParameter("times= must be a list of rising times at which intervals begin: [0, 30, 60], say")


def check_look(first: Look, missing: str, fed: Federation) -> None:
    """Refuse rows that no survival model can be fitted to."""
    rows = float(first.rows)
    gaps = float(first.incomplete)
    if gaps and missing == "refuse":
        raise BadData(
            f"{gaps:g} rows have missing values{where_missing(fed)}: set missing='drop' to leave them out, or fill them in first"
        )
    if rows == 0:
        raise BadData("no row is complete: give times, events and covariates without missing values")
    if first.negative:
        raise BadData(f"{float(first.negative):g} rows have a time below 0: give the time since each patient's start")
    if first.odd:
        raise BadData(f"{float(first.odd):g} rows have an event that is neither 0 nor 1: 1 is an event, 0 is censored")
