"""What differs between sites' tables, one sentence each. Pure functions of profiles, nothing is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from unpooled.data.check import scales
from unpooled.data.check.levels import is_common, odd_levels
from unpooled.data.check.names import counterpart
from unpooled.data.check.profile import ColumnProfile, Profile
from unpooled.data.schema import Schema
from unpooled.errors import suggest
from unpooled.toml_text import key, quoted

FEW_ROWS = 10
MAPPED = 8  # levels that are listed for a site to map
ZERO_COMMON = 0.03  # share of the rows that are 0 at every site where 0 is a value and no code
MISSING_APART = 0.5  # difference in the share of missing cells that is reported
NUMBERS = ("real", "binary", "positive", "count")
TEXTS = ("category", "ordered", "id")


class Finding(NamedTuple):
    """Something to look at before a fit."""

    what: str  # "name", "kind", "unit", "levels", "code", "missing", "column", "order", "id", "rows", "label", "constant", "table"
    column: str  # "" where it concerns the whole table
    site: str  # "" where it concerns all sites
    text: str
    remedy: str = ""  # the line of [sites.NAME] or [data.columns] that may mend it, if there is one


def findings(profiles: Sequence[Profile], declared: Schema | None = None, label: str | None = None) -> list[Finding]:
    """Everything that differs, the most serious first; `declared` are the kinds that were agreed, if any were."""
    readable = [p for p in profiles if not p.problem]
    found = [Finding("table", "", p.name, p.problem) for p in profiles if p.problem]
    unused = {c.name for c in declared or () if c.kind == "ignored"}
    by_column = _by_column(readable, unused)
    rows_of = {p.name: p.rows for p in readable}
    found += _columns(readable, by_column, declared)
    found += _order(readable)
    for name, held in by_column.items():
        found += _kinds(name, held, declared)
        found += _scales(name, {site: c for site, c in held.items() if rows_of[site] >= FEW_ROWS})
        found += _levels(name, held, declared)
        found += _level_order(name, held, declared)
        found += _codes(name, held, rows_of)
        found += _missing(name, held, {site for site, rows in rows_of.items() if not rows})
        found += _constant(name, {site: c for site, c in held.items() if rows_of[site] >= FEW_ROWS})
        found += _ids(name, held)
    found += _rows(readable)
    found += _labels(readable, label)
    return found


def _by_column(profiles: Sequence[Profile], unused: set[str]) -> dict[str, dict[str, ColumnProfile]]:
    """column -> site -> its profile."""
    out: dict[str, dict[str, ColumnProfile]] = {}
    for p in profiles:
        for c in p.columns:
            if c.name not in unused:
                out.setdefault(c.name, {})[p.name] = c
    return out


# ---- columns that are there or not ----


def _columns(
    profiles: Sequence[Profile], by_column: Mapping[str, Mapping[str, ColumnProfile]], declared: Schema | None
) -> Iterator[Finding]:
    """Columns that a site lacks, calls by another name, or has in addition to the others."""
    wanted = _wanted(profiles, by_column, declared)
    told: set[tuple[str, str]] = set()
    for profile in profiles:
        lacking = [c for c in wanted if c not in profile.names and c not in profile.lacks]
        extra = [c for c in profile.names if c not in wanted and c in by_column and c not in (declared or ())]
        for name in lacking:
            others = [c for site, c in by_column.get(name, {}).items() if site != profile.name]
            twin = counterpart(name, profile, [e for e in extra if (profile.name, e) not in told], others)
            if twin is not None:
                told.add((profile.name, twin))
                yield Finding(
                    "name",
                    name,
                    profile.name,
                    f"has no column {name!r}; its column {twin!r} looks like it",
                    f"{key(name)} = {quoted(twin)}",
                )
            else:
                yield Finding("column", name, profile.name, f"has no column {name!r}", f"{key(name)} = false")
        for name in extra:
            if (profile.name, name) not in told:
                yield Finding("column", name, profile.name, f"has a column {name!r} that other sites do not have")


def _wanted(
    profiles: Sequence[Profile], by_column: Mapping[str, Mapping[str, ColumnProfile]], declared: Schema | None
) -> list[str]:
    """The columns that every site should have: those declared, and those that more than half of the sites have."""
    given = [c.name for c in declared or () if c.used]
    ids = {c.name for c in declared or () if c.kind == "id"}
    usual = [name for name, held in by_column.items() if 2 * len(held) > len(profiles) and name not in ids]
    if len(profiles) == 2:
        usual = [name for name in profiles[0].names if name in by_column and name not in ids]
    return list(dict.fromkeys([*given, *usual]))


def _order(profiles: Sequence[Profile]) -> Iterator[Finding]:
    """Sites whose columns stand in another order than at most sites."""
    if not profiles:
        return
    orders = {p.name: tuple(p.names) for p in profiles}
    usual = _usual_order(orders.values())
    for p in profiles:
        if not _agree(orders[p.name], usual):
            yield Finding("order", "", p.name, "has its columns in another order; they are taken by name")


def _usual_order(orders: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The order that agrees with most others, the first of them on a tie."""
    sites_with = Counter(orders)
    return max(sites_with, key=lambda names: sum(n * _agree(names, other) for other, n in sites_with.items()))


def _agree(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether the columns that two sites share stand in the same order."""
    shared = set(a) & set(b)
    return [c for c in a if c in shared] == [c for c in b if c in shared]


# ---- what single columns hold ----


def _kinds(name: str, held: Mapping[str, ColumnProfile], declared: Schema | None) -> Iterator[Finding]:
    """Sites where a column cannot be read as one kind, or has another kind than at most sites."""
    told = {site: _group(c.kind) for site, c in held.items() if c.kind not in ("empty", "mixed")}
    for site, c in held.items():
        if c.problem:
            yield Finding("kind", name, site, c.problem)
    given = declared[name].kind if declared is not None and name in declared else ""
    usual = _group(given) if given not in ("", "auto") else _most_common(list(told.values()))
    for site, kind in told.items():
        if usual and kind != usual and not _compatible(kind, given):
            wanted = f"elsewhere {_called(usual)}" if given in ("", "auto") else f"and is declared {given!r}"
            yield Finding("kind", name, site, f"column {name!r} holds {_called(kind)}, {wanted}")


def _group(kind: str) -> str:
    """ "number", "text" or the kind itself: kinds within one group can stand for each other."""
    if kind in NUMBERS:
        return "number"
    return "text" if kind in TEXTS else kind


def _compatible(kind: str, given: str) -> bool:
    """Whether cells of a kind can be read as declared: numbers may be levels, and ids."""
    return given in ("category", "ordered", "binary", "id", "ignored") and kind in ("number", "text")


def _called(kind: str) -> str:
    """How a group of kinds is called in a sentence."""
    return {"number": "numbers", "text": "texts", "date": "dates"}.get(kind, kind)


def _most_common(values: Sequence[str]) -> str:
    """The value that occurs most often, the first of them on a tie; "" when there are none."""
    return max(values, key=lambda v: (list(values).count(v), -list(values).index(v)), default="")


def _scales(name: str, held: Mapping[str, ColumnProfile]) -> Iterator[Finding]:
    """Sites whose numbers are standardised, below zero, or a known factor away from the others."""
    numeric = {site: c for site, c in held.items() if c.kind in NUMBERS and c.quantiles and not c.constant}
    quantiles = {site: c.quantiles for site, c in numeric.items() if not _few_values(c)}
    if len(quantiles) < 2:
        return
    standard = [site for site in quantiles if held[site].standardised]
    if 0 < len(standard) < len(quantiles) and not all(_like_others(site, quantiles) for site in standard):
        text = "its values have mean 0 and standard deviation 1, elsewhere not: it is on another scale"
        yield from (Finding("unit", name, site, f"column {name!r}: {text}") for site in standard)
        return
    below = _below_zero(quantiles)
    if below is not None:
        text = "a quarter of its values or more are below 0, elsewhere hardly any: it is on another scale"
        yield Finding("unit", name, below, f"column {name!r}: {text}")
        return
    for site, text in _other_scales(quantiles).items():
        if text:
            yield Finding("unit", name, site, f"column {name!r}: {text}")


def _other_scales(quantiles: Mapping[str, list[float]]) -> dict[str, str]:
    """site -> what is odd about its scale, "" for nothing."""
    middle = scales.middle_site(quantiles)
    between = scales.between_sites(list(quantiles.values()))
    odd = {site: scales.difference(q, quantiles[middle], between) for site, q in quantiles.items() if site != middle}
    n_odd = sum(map(bool, odd.values()))
    if n_odd > len(odd) / 2 + 0.5:  # it is the middle one that differs
        other = next(site for site, text in odd.items() if text)
        odd = {middle: scales.difference(quantiles[middle], quantiles[other], between)}
    if any(odd.values()):
        return odd
    return {site: scales.multiple(q, _of_others(site, quantiles)) for site, q in quantiles.items()}


def _of_others(site: str, quantiles: Mapping[str, list[float]]) -> list[list[float]]:
    """The quantiles of all other sites."""
    return [q for other, q in quantiles.items() if other != site]


def _like_others(site: str, quantiles: Mapping[str, list[float]]) -> bool:
    """Whether a site's numbers have about the level and the spread of the others'."""
    return scales.alike(quantiles[site], _of_others(site, quantiles))


def _below_zero(quantiles: Mapping[str, list[float]]) -> str | None:
    """The one site with a quarter of its numbers below 0, as standardised ones are, where others have hardly any."""
    negative = [site for site, q in quantiles.items() if q[1] < 0]
    above = [site for site, q in quantiles.items() if q[0] > 0]
    others = len(quantiles) - 1
    return negative[0] if len(negative) == 1 and len(above) == others > 0 else None


def _few_values(c: ColumnProfile) -> bool:
    """Whether the column has one or two distinct values, so that its quantiles say little about a unit."""
    return bool(c.levels) and len(c.levels) <= 2


def _levels(name: str, held: Mapping[str, ColumnProfile], declared: Schema | None) -> Iterator[Finding]:
    """Sites that write levels in another way than the declaration, or than the other sites."""
    known = set(declared[name].levels) if declared is not None and name in declared else set()
    if not known and any(c.kind == "id" for c in held.values()):
        return  # another text in every row: at sites of few rows too they are no levels
    levels = {site: _kept(c) for site, c in held.items() if c.levels and _told_by_levels(c)}
    if len({_group(held[site].kind) for site in levels}) > 1:
        return  # reported as another kind
    alone = _alone(levels)
    for site, mine in levels.items():
        others = {s: v for s, v in levels.items() if s != site}
        if known:
            others = {"declared": dict.fromkeys(known, 1)}
            unlisted = sorted(set(mine) - known)
            text = odd_levels(mine, others) or (f"{unlisted[0]!r} is not a declared level" if unlisted else "")
        elif _group(held[site].kind) == "number":
            text = _odd_coding(mine, others)
        else:
            text = odd_levels(mine, others) if site in alone else ""
        if text:
            strange = sorted(set(mine) - (known or {level for v in others.values() for level in v}))
            to = ", ".join(f'{quoted(level)} = "..."' for level in strange[:MAPPED])
            remedy = f"{key(name)} = {{levels = {{{to}}}}}" if strange else ""
            yield Finding("levels", name, site, f"column {name!r}: {text}", remedy)


def _level_order(name: str, held: Mapping[str, ColumnProfile], declared: Schema | None) -> Iterator[Finding]:
    """Sites whose ordered levels stand in another order than declared, or than at most sites."""
    orders = {site: tuple(c.levels) for site, c in held.items() if c.kind == "ordered"}
    given = list(declared[name].levels) if declared is not None and name in declared else []
    if not orders:
        return
    usual = given or _usual_order(orders.values())
    for site, order in orders.items():
        if not _agree(order, usual):
            yield Finding("levels", name, site, f"column {name!r} has its levels in another order: {' < '.join(order)}")


def _told_by_levels(c: ColumnProfile) -> bool:
    """Whether levels describe the column: categories, and numbers of which the profile lists the values."""
    return c.kind in ("category", "ordered") or (c.kind in NUMBERS and len(c.levels) >= 2)


def _kept(c: ColumnProfile) -> dict[str, int]:
    """Rows per level, without levels that look like codes for missing."""
    return {level: n for level, n in c.levels.items() if level not in c.codes}


def _alone(levels: Mapping[str, Mapping[str, int]]) -> set[str]:
    """Sites that may be the odd ones: few others have the same levels. With two sites it is the second."""
    if len(levels) == 2:
        return {list(levels)[1]}
    sites_with = Counter(level for held in levels.values() for level in held)
    if max(sites_with.values(), default=0) < 2:
        return set()  # no level occurs at two sites
    same = Counter(frozenset(held) for held in levels.values())
    return {site for site, held in levels.items() if 2 * (same[frozenset(held)] - 1) < len(levels) - 1}


def _odd_coding(mine: Mapping[str, int], others: Mapping[str, Mapping[str, int]]) -> str:
    """A few whole numbers where all others have as many other ones."""
    sets = {frozenset(v) for v in others.values()}
    if len(others) < 2 or len(sets) > 1:
        return ""
    usual = next(iter(sets))
    pooled = {level: sum(v[level] for v in others.values()) for level in usual}
    differ = any(is_common(v, mine) for v in set(mine) - usual) or any(is_common(v, pooled) for v in usual - set(mine))
    if len(mine) == len(usual) and differ:
        return f"it has {', '.join(sorted(mine))} where others have {', '.join(sorted(usual))}"
    return ""


def _codes(name: str, held: Mapping[str, ColumnProfile], rows_of: Mapping[str, int]) -> Iterator[Finding]:
    """Values that look like codes for missing, such as -9, 999 or "unknown"."""
    zero = _zero_is_a_value(held, rows_of)
    for site, c in held.items():
        for code, rows in c.codes.items():
            if code == "0" and zero:
                continue
            yield Finding("code", name, site, f"column {name!r} holds {code} in {rows} rows, which may mean missing")


def _zero_is_a_value(held: Mapping[str, ColumnProfile], rows_of: Mapping[str, int]) -> bool:
    """Whether 0 is common at every one of several sites: an amount that is often zero (no payment, no rain)."""
    told = {site: c for site, c in held.items() if c.kind != "empty"}
    return len(told) > 2 and all(
        c.codes.get("0", 0) >= ZERO_COMMON * rows_of[site] or _is_low(0.0, c) for site, c in told.items()
    )


def _is_low(value: float, c: ColumnProfile) -> bool:
    """Whether the lowest of a site's numbers are about this value."""
    return bool(c.quantiles) and c.quantiles[0] <= value <= c.quantiles[2]


def _missing(name: str, held: Mapping[str, ColumnProfile], empty: set[str]) -> Iterator[Finding]:
    """Sites where a column is missing altogether, or in a share of rows that is far from the median site's."""
    shares = {site: c.missing for site, c in held.items()}
    usual = sorted(shares.values())[(len(shares) - 1) // 2]
    for site, c in held.items():
        if c.kind == "empty" and len(held) > 1 and site not in empty:
            yield Finding("missing", name, site, f"column {name!r} is missing in every row")
        elif abs(shares[site] - usual) > MISSING_APART:
            text = f"column {name!r} is missing in {shares[site]:.0%} of the rows, elsewhere in {usual:.0%}"
            yield Finding("missing", name, site, text)


def _constant(name: str, held: Mapping[str, ColumnProfile]) -> Iterator[Finding]:
    """Columns with one value in every row: at all sites, or at one site where others vary."""
    told = {site: c for site, c in held.items() if c.kind != "empty"}
    flat = [site for site, c in told.items() if c.constant]
    if not flat:
        return
    if len(flat) == len(told):
        values = {next(iter(c.levels), str(c.quantiles[:1])) for c in told.values()}
        if len(values) == 1:
            yield Finding("constant", name, "", f"column {name!r} has one value in every row of every site")
        return
    for site in flat:
        others = [c for s, c in told.items() if s != site and not c.constant]
        if told[site].kind in NUMBERS and all(not c.levels for c in others):
            yield Finding("constant", name, site, f"column {name!r} has one value in every row")


def _ids(name: str, held: Mapping[str, ColumnProfile]) -> Iterator[Finding]:
    """Sites where several rows have the same id."""
    for site, c in held.items():
        if c.kind == "id" and c.repeated:
            yield Finding("id", name, site, f"{c.repeated} rows share their {name!r} with another row")


# ---- whole tables ----


def _rows(profiles: Sequence[Profile]) -> Iterator[Finding]:
    """Sites with too few rows for their figures to mean much."""
    for p in profiles:
        if p.rows < FEW_ROWS:
            yield Finding("rows", "", p.name, f"has fewer than {FEW_ROWS} rows")


def _labels(profiles: Sequence[Profile], label: str | None) -> Iterator[Finding]:
    """A column of labels that no site has, and sites with rows that have no label."""
    known = {name for p in profiles for name in p.names}
    if label is not None and known and label not in known:
        yield Finding(
            "label", label, "", f"no site has the column of labels {label!r}: {suggest(label, sorted(known))}"
        )
    for p in profiles if label is not None else ():
        if p.unlabelled:
            yield Finding("label", str(label), p.name, f"{p.unlabelled} rows have no label: they are left out of a fit")
