"""A check of all sites' tables before anything is fitted: what differs in names, kinds, units, levels and codes.

In this process nothing is sent. Over a link each node sends one profile of its table, if its owner allows it: counts above its
floor and coarse histograms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unpooled import config as configs
from unpooled import store
from unpooled.data import tables
from unpooled.data.check import Finding, Profile, findings, profile, proposed, remedies, unreadable
from unpooled.data.columns import columns_by_name, renamed
from unpooled.data.files import Columns
from unpooled.data.frames import pick
from unpooled.data.schema import Own, Schema, as_texts, read_own
from unpooled.data.tables import Collection
from unpooled.errors import BadData, BadParameter, DataNotFound, UnpooledError
from unpooled.report import check_page


@dataclass(frozen=True)
class Check:
    """What was found in the tables of all sites.

    Attributes
    ----------
    profiles : list of Profile
        What each site says of its table.
    findings : list of Finding
        What differs: (what, column, site, text, remedy) each.
    columns : dict
        The [columns] to start from.
    """

    profiles: list[Profile]
    findings: list[Finding]
    columns: dict[str, Any]

    def __str__(self) -> str:
        """The findings as text for a terminal."""
        return check_page.text(self.profiles, self.findings)

    def _repr_html_(self) -> str:
        """The findings as a page, which notebooks show."""
        return check_page.body(self.profiles, self.findings, self.toml)

    @property
    def toml(self) -> str:
        """The [columns] to start from, as TOML, and in comments what single sites may add."""
        return configs.dumps({"columns": self.columns}) + remedies(self.findings)

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file that opens offline."""
        store.write_file(Path(path), check_page.page(self.profiles, self.findings, self.toml).encode())
        return Path(path)


def check(
    data: Any,
    *,
    by: Any = None,
    label: str | None = None,
    columns: Mapping[str, Any] | None = None,
    sites: Mapping[str, Mapping[str, Any]] | None = None,
) -> Check:
    """Compare the tables of all sites before anything is fitted.

    Parameters
    ----------
    data : dict, list, frame or path
        One table per site: a dict or list of frames or files, a folder or glob of files; or one table, with `by`.
    by : array-like, str or None, default=None
        The site of each row, or the column that holds it, where `data` is one table.
    label : str or None, default=None
        The column of labels: rows without one are counted.
    columns : dict or None, default=None
        Kinds that are agreed already, with the keys of [columns] in a config; tables are compared with them.
    sites : dict or None, default=None
        How single sites write columns, with the keys of a node's [data.columns].

    Returns
    -------
    Check
        What was found; print it, or `save` it as a page.

    Examples
    --------
    >>> import pandas as pd, unpooled as up
    >>> paris = pd.DataFrame({"height": [170.0, 181, 164, 175] * 5, "sex": ["f", "m"] * 10})
    >>> boston = pd.DataFrame({"height": [70.0, 65, 72, 61] * 5, "sex": ["F", "M"] * 10})
    >>> for finding in up.check({"paris": paris, "boston": boston}).findings:
    ...     print(finding.site, finding.text)
    boston column 'height': its values are 2.54 times smaller (centimetres and inches?)
    boston column 'sex': 'F' is written 'f' elsewhere, 'M' is written 'm' elsewhere
    """
    declared = None if columns is None else Schema.from_toml(columns, "columns=")
    own = {name: read_own(entry, f"sites.{name}") for name, entry in (sites or {}).items()}
    known = {c.name: c for c in declared or ()}
    profiles = []
    for name, held in raw_tables(data, by=by, sites=own).items():
        if isinstance(held, str):
            profiles.append(unreadable(name, held))
        else:
            mine = {c: o.renamed() for c, o in own.get(name, {}).items()}
            profiles.append(profile(name, held, label=label, declared=known, own=mine))
    return compared(profiles, declared, label)


def compared(profiles: Sequence[Profile], declared: Schema | None = None, label: str | None = None) -> Check:
    """The check of tables that were described by their sites."""
    found = findings(profiles, declared, label)
    return Check(list(profiles), found, proposed(profiles, declared, found).to_toml())


# ---- tables before they are encoded ----


def raw_tables(data: Any, *, by: Any = None, sites: Mapping[str, Mapping[str, Own]] | None = None) -> dict[str, Any]:
    """client -> its columns by the federation's names, or the sentence that says why they cannot be read."""
    data = tables.listed(data)
    if isinstance(data, Path) and not data.exists():
        raise DataNotFound(f"{data} is neither a file nor a folder: check the path")
    if isinstance(data, Collection):
        data = tables.named_arrays(data)
    if tables.is_many(data):
        if by is not None:
            raise BadParameter(tables.SPLIT_ALREADY)
        if not data:
            raise BadData(tables.NO_CLIENTS)
        declared = sites or {}
        return {n: _raw(x, declared.get(n, {}), tables.client_text(n)) for n, x in tables.by_client(data)}
    whole = _raw(data, {}, "the data")
    return {tables.single_name(data): whole} if by is None or isinstance(whole, str) else _raw_by(whole, by)


def _raw(data: Any, own: Mapping[str, Own], where: str) -> Any:
    """Unconverted columns of one client or, where they cannot be read, the sentence that says why."""
    data = data[0] if isinstance(data, tuple) else data
    if not tables.has_names(data):
        raise BadData(f"{where} is an array without names: a check compares columns by name, give frames or files")
    try:
        return renamed(columns_by_name(data, where)[0], own, where)
    except UnpooledError as error:
        return str(error)


def _raw_by(columns: Columns, by: Any) -> dict[str, Any]:
    """Unconverted columns, split into clients by the column `by` or by an array with one entry per row."""
    rows = len(next(iter(columns.values()), ()))
    groups = as_texts(pick(columns, by, "by", "the data") if isinstance(by, str) else tables.groups_of(by, rows))
    if (gaps := groups.codes < 0).any():
        raise BadData(tables.no_client(gaps))
    parts = {name: _rows_of(columns, groups.codes == i) for i, name in enumerate(groups.levels)}
    return dict(sorted(parts.items()))


def _rows_of(columns: Columns, mine: np.ndarray) -> Columns:
    """The rows of a table where `mine` (n,) is true."""
    return {
        name: values[mine] if hasattr(values, "codes") else np.asarray(values)[mine] for name, values in columns.items()
    }
