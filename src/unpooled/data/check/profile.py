"""What one site says of its table: for each column its kind, missing cells, levels or a coarse histogram.

Counts of fewer rows than the site's floor are left out, other counts are rounded down to multiples of it, and above a floor of 1
quantiles come from a histogram of twelve bins per power of ten. No single cell leaves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from unpooled.data.check.codes import number_codes, text_codes
from unpooled.data.schema import Own, Texts, as_texts, infer
from unpooled.data.schema.column import MAX_LEVELS
from unpooled.data.schema.dates import days
from unpooled.data.schema.encode import contradicting
from unpooled.data.schema.infer import ID_ROWS, is_number, is_truth, object_numbers
from unpooled.data.schema.units import conversion
from unpooled.errors import BadData, printable

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
FEW_VALUES = 10  # whole numbers of so many values at most are listed as levels are
STEPS = np.array([1.0, 1.2, 1.5, 1.8, 2.2, 2.7, 3.3, 3.9, 4.7, 5.6, 6.8, 8.2])
WHO = "patient|subject|person|participant|record|case|sample"
ID_NAME = re.compile(rf"(?i:(^|[_ .-])(id|uid|pid|mrn|({WHO})[_ .-]?(id|no|nr|number|code)?)$)|[a-z](ID|Id)$")
NO_DATES = ("1900-01-01", "1901-01-01", "2999-12-31", "9999-12-31")  # dates that stand for missing ones


@dataclass(frozen=True)
class ColumnProfile:
    """What one site says of one column.

    Attributes
    ----------
    name, kind : str
        Its name at the site and its kind there: a kind of `Column`, "empty" if all is missing, "mixed" if it cannot be read.
    missing : float
        The share of its cells that are missing.
    quantiles : list of float
        At 5, 25, 50, 75 and 95 %, of numbers; coarse where the site has a floor.
    levels : dict of str to int
        Rows of each level, or of each of few whole numbers.
    codes : dict of str to int
        Rows of values that look like codes for missing.
    constant : bool
        Whether it has one value only.
    distinct : bool
        Whether no two rows have the same value.
    repeated : int
        Rows of an id whose value another row has too.
    positive, whole, standardised : bool
        Whether all numbers are above 0, or whole, or have mean 0 and standard deviation 1.
    problem : str
        Why it cannot be read as one kind or contradicts its declaration; empty otherwise.
    """

    name: str
    kind: str
    missing: float = 0.0
    quantiles: list[float] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    constant: bool = False
    distinct: bool = False
    repeated: int = 0
    positive: bool = False
    whole: bool = False
    standardised: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Profile:
    """What one site says of its table.

    Attributes
    ----------
    name : str
        The site.
    rows : int
        Rows, rounded down to a multiple of the site's floor.
    columns : list of ColumnProfile
        In the order of the table.
    unlabelled : int
        Rows without a label.
    lacks : list of str
        Columns that the site has declared it does not have.
    problem : str
        Why its table cannot be read or is not described; empty otherwise.
    """

    name: str
    rows: int = 0
    columns: list[ColumnProfile] = field(default_factory=list)
    unlabelled: int = 0
    lacks: list[str] = field(default_factory=list)
    problem: str = ""

    def pack(self) -> dict[str, Any]:
        """To be sent."""
        return asdict(self)

    @classmethod
    def unpack(cls, body: Mapping[str, Any]) -> Profile:
        """What `pack` gave; texts of another site as a terminal may show them."""
        body = _shown(body)
        columns = [ColumnProfile(**c) for c in body["columns"]]
        return cls(**{**body, "columns": columns})

    def __getitem__(self, name: str) -> ColumnProfile:
        """The profile of the column called `name`."""
        return next(c for c in self.columns if c.name == name)

    @property
    def names(self) -> list[str]:
        """Names of the columns, in the table's order."""
        return [c.name for c in self.columns]


def _shown(value: Any) -> Any:
    """The value with every text, names of fields and levels included, as it can be printed."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {_shown(key): _shown(part) for key, part in value.items()}
    return [_shown(part) for part in value] if isinstance(value, list) else value


def unreadable(name: str, why: str) -> Profile:
    """The profile of a site whose table cannot be read."""
    return Profile(name, problem=why)


def profile(
    name: str,
    columns: Mapping[str, Any],
    *,
    label: str | None = None,
    floor: int = 1,
    declared: Mapping[str, Any] | None = None,
    own: Mapping[str, Own] | None = None,
) -> Profile:
    """What a site says of its columns; `declared` are kinds by name, `own` how the site writes them."""
    rows = len(next(iter(columns.values()))) if columns else 0
    found = []
    for column, values in columns.items():
        given = (declared or {}).get(column)
        found.append(_column(column, values, floor, given, (own or {}).get(column, Own())))
    gaps = 0
    if label is not None and label in columns:
        gaps = round(next(c.missing for c in found if c.name == label) * rows)
    lacks = [column for column, entry in (own or {}).items() if entry.lacks]
    return Profile(name, _floored(rows, floor), found, _floored(gaps, floor), lacks)


def _floored(count: int, floor: int) -> int:
    """The count rounded down to a multiple of `floor`, so that no answer tells a count below it."""
    return int(count) // floor * floor if floor > 1 else int(count)


def _raised(count: int, floor: int) -> int:
    """A count that must not be overlooked: rounded down to the floor, but to no less than the floor."""
    return max(_floored(count, floor), floor) if count else 0


def _column(name: str, values: Any, floor: int, given: Any, own: Own) -> ColumnProfile:
    """The profile of one column by its kind: numbers, dates or texts."""
    kind, problem = _kind(name, values, given, floor)
    if not isinstance(values, Texts) and np.asarray(values).dtype == object:
        numbers = object_numbers(np.asarray(values))
        values = values if numbers is None else numbers
    if not isinstance(values, Texts) and np.asarray(values).dtype.kind in "fiu" and kind not in ("category", "ordered"):
        return _numbers(name, kind, np.asarray(values, np.float64), floor, given, own)
    if kind == "date":
        return _dates(name, values, floor)
    return _texts(name, kind, as_texts(values), floor, problem, given, own)


def _kind(name: str, values: Any, given: Any, floor: int) -> tuple[str, str]:
    """(kind, what is wrong); cells are quoted only where there is no floor."""
    try:
        found = infer(name, values, "it")
    except BadData as error:
        unquoted = f"column {name!r} holds numbers beside texts, dates of several forms, or too many texts"
        return "mixed", str(error).replace(" of it", "", 1) if floor <= 1 else unquoted
    if found is None:
        return "empty", ""
    kind = "category" if found.kind == "binary" and found.levels else found.kind
    if given is not None and kind in ("real", "binary") and given.kind in ("category", "ordered", "binary"):
        return "category" if given.levels else kind, ""
    return kind, ""


def _share(count: float, rows: int, floor: int) -> float:
    """A share of the rows, by counts rounded down to the floor."""
    return round(_floored(int(count), floor) / max(rows, 1), 4)


# ---- numbers ----


def _numbers(name: str, kind: str, x: np.ndarray, floor: int, given: Any, own: Own) -> ColumnProfile:
    """The profile of a numeric column, in the declared unit, with codes for missing left out."""
    x = _in_declared_unit(name, x, given, own)
    problem = _contradiction(name, x, given, floor)
    present = x[np.isfinite(x)]
    gaps = _share(np.isnan(x).sum(), len(x), floor)
    if len(present) < max(floor, 1):
        return ColumnProfile(name, "empty", gaps)
    codes = {c: n for c, n in number_codes(present).items() if n >= floor}
    bare = present[~np.isin(present, [float(c) for c in codes])]  # without codes
    if len(bare) < max(floor, 1):
        bare = present
    found, counts = np.unique(bare, return_counts=True)
    whole = bool((bare == np.floor(bare)).all())
    levels = {}
    if whole and len(found) <= FEW_VALUES and len(bare) > 2 * len(found):
        levels = {f"{v:g}": _floored(n, floor) for v, n in zip(found, counts) if n >= floor}
    named_id = bool(ID_NAME.search(name)) or (given is not None and given.kind == "id")
    is_id = named_id and whole and len(found) > 0.5 * len(bare)
    return ColumnProfile(
        name,
        "id" if is_id else kind,
        gaps,
        _quantiles(bare, floor),
        levels,
        {c: _floored(n, floor) for c, n in codes.items()},
        constant=len(found) == 1,
        distinct=len(found) == len(bare),
        repeated=_raised(_repeated(counts), floor) if is_id else 0,
        positive=bool((bare > 0).all()),
        whole=whole,
        standardised=len(bare) >= 20 and bool(abs(bare.mean()) < 0.01 and abs(bare.std() - 1) < 0.03),
        problem=problem,
    )


def _in_declared_unit(name: str, x: np.ndarray, given: Any, own: Own) -> np.ndarray:
    """Numbers in the declared unit; known codes for missing become NaN."""
    declared_codes = given.missing if given is not None else ()
    codes = [float(c) for c in (*declared_codes, *own.missing) if is_number(str(c))]
    if codes:
        x = np.where(np.isin(x, codes), np.nan, x)
    wanted = given.unit if given is not None else None
    if own.factor is None and (wanted is None or own.unit is None):
        return x
    change = conversion(own.unit, wanted, own.factor, name, "the site")
    return x * change.factor + change.shift


def _contradiction(name: str, x: np.ndarray, given: Any, floor: int) -> str:
    """The sentence about infinite numbers, or numbers that the declared kind does not have; a number is quoted without a floor."""
    if np.isinf(x).any():
        return f"column {name!r} holds infinite values: leave cells empty where a value is missing"
    wrong = None if given is None or given.levels else contradicting(given.kind, x)
    if wrong is None or not wrong.any():
        return ""
    some = f"{x[wrong][0]:g}" if floor <= 1 else "other numbers"
    return f"column {name!r} is declared {given.kind!r} and holds {some}"


def _repeated(counts: np.ndarray) -> int:
    """How many rows share their value with another row."""
    return int(counts[counts > 1].sum())


def _quantiles(x: np.ndarray, floor: int) -> list[float]:
    """Quantiles at SHARES: exact without a floor, else read from a histogram and rounded to three digits."""
    if floor <= 1:
        return [float(v) for v in np.quantile(x, SHARES)]
    edges, counts = histogram(x, floor)
    return [] if counts.sum() == 0 else [float(f"{v:.3g}") for v in _from_histogram(edges, counts)]


def histogram(x: np.ndarray, floor: int) -> tuple[np.ndarray, np.ndarray]:
    """(edges (b + 1,), counts (b,)) with twelve bins per power of ten on either side of 0; bins of few rows are emptied."""
    top = np.abs(x).max(initial=0.0)
    powers = range(-6, int(np.ceil(np.log10(top))) + 1) if top > 1e-6 else range(0, 1)
    last = 10.0 ** (powers[-1] + 1)
    ladder = np.concatenate([*(STEPS * 10.0**p for p in powers), [last]])
    edges = np.concatenate([-ladder[::-1], ladder])
    counts = np.histogram(x, edges)[0]
    return edges, np.where(counts >= floor, counts, 0)


def _from_histogram(edges: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Quantiles at SHARES by straight lines through the cumulative counts."""
    below = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
    return np.interp(SHARES, below, edges)


# ---- texts and dates ----


def _texts(name: str, kind: str, texts: Texts, floor: int, problem: str, given: Any, own: Own) -> ColumnProfile:
    """The profile of a column of texts: levels with enough rows, or an id that has one text per row."""
    rows = len(texts)
    counts = texts.counts
    declared_codes = given.missing if given is not None else ()
    missing = {str(c) for c in (*declared_codes, *own.missing)}
    held = {own.levels.get(t, t): int(n) for t, n in zip(texts.levels, counts) if n and t not in missing}
    present = sum(held.values())
    if is_truth(held):
        held = _without_case(held)
    gaps = _share(rows - present, rows, floor)
    if not present:
        return ColumnProfile(name, "empty", gaps)
    is_id = kind == "id" or (bool(ID_NAME.search(name)) and len(held) > 0.5 * present)
    is_id = is_id or (given is not None and given.kind == "id")
    is_id = is_id or (given is None and kind == "category" and len(held) > max(ID_ROWS, 0.9 * present))
    repeated = _raised(sum(n for n in held.values() if n > 1), floor) if is_id else 0
    levels = {t: _floored(n, floor) for t, n in held.items() if n >= max(floor, 1)}
    if is_id or len(held) > MAX_LEVELS or kind == "mixed":
        levels = {}
    codes = {t: _floored(n, floor) for t, n in text_codes(held).items() if n >= floor}
    return ColumnProfile(
        name,
        "id" if is_id else kind,
        gaps,
        levels=levels,
        codes=codes,
        constant=len(held) == 1,
        distinct=len(held) == present,
        repeated=repeated,
        problem=problem,
    )


def _without_case(held: Mapping[str, int]) -> dict[str, int]:
    """Rows of each text in lower case: TRUE and true mean the same."""
    counts = dict.fromkeys(sorted({text.lower() for text in held}), 0)
    for text, n in held.items():
        counts[text.lower()] += n
    return counts


def _dates(name: str, values: Any, floor: int) -> ColumnProfile:
    """The profile of a column of dates, with days such as 1900-01-01 that stand for missing."""
    x = days(values, name, "it")
    present = x[~np.isnan(x)]
    gaps = _share(len(x) - len(present), len(x), floor)
    quantiles = _quantiles(present, floor) if len(present) >= max(floor, 1) else []
    codes = {}
    for text in NO_DATES:
        day = days(np.array([text], dtype=object), name, "it")[0]
        count = int((present == day).sum())
        if count >= max(floor, 2):
            codes[text] = _floored(count, floor)
    return ColumnProfile(name, "date", gaps, quantiles, codes=codes, constant=len(np.unique(present)) == 1)
