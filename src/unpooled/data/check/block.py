"""The [columns] to start from: what sites agree on, with codes for missing and levels; and lines for sites that differ.

Pure functions, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unpooled.data.check.findings import Finding
from unpooled.data.check.profile import ColumnProfile, Profile
from unpooled.data.schema import Column, Schema
from unpooled.data.schema.agree import sorted_levels
from unpooled.data.schema.column import MAX_LEVELS
from unpooled.data.schema.infer import TRUTH, is_number, is_truth
from unpooled.toml_text import key

RANKED = ("real", "binary", "category", "ordered", "date", "id")


def proposed(profiles: Sequence[Profile], declared: Schema | None, found: Sequence[Finding]) -> Schema:
    """Kinds, levels and missing codes for the columns that more than half of the sites have, as sites without a finding have them."""
    held: dict[str, dict[str, ColumnProfile]] = {}
    for p in profiles:
        for c in p.columns:
            held.setdefault(c.name, {})[p.name] = c
    odd = {(f.site, f.column) for f in found if f.what in ("levels", "kind")}
    for name, by_site in held.items():
        held[name] = {site: c for site, c in by_site.items() if (site, name) not in odd} or by_site
    readable = [p for p in profiles if not p.problem]
    names = [name for name in held if 2 * sum(name in p.names for p in readable) > len(readable)]
    if len(readable) == 2:
        names = readable[0].names
    given = declared if declared is not None else Schema(())
    return Schema(tuple(given[n] if n in given else _column(n, held[n]) for n in names))


def _column(name: str, held: Mapping[str, ColumnProfile]) -> Column:
    """The declaration of one column: the kind most sites have (the broader one on a tie), all sites' codes and levels."""
    kinds = [_kind(c, held) for c in held.values() if c.kind in RANKED]
    kind = max(kinds, key=lambda k: (kinds.count(k), RANKED.index(k)), default="ignored")
    codes = sorted({code for c in held.values() for code in c.codes})
    missing = tuple(_code(code) for code in codes)
    if kind in ("real", "binary"):
        return _number(name, held, missing)
    if kind not in ("category", "ordered"):
        return Column(name, kind, missing=missing if kind == "date" else ())
    levels = {level for c in held.values() for level in c.levels if level not in codes}
    if not 1 < len(levels) <= MAX_LEVELS:
        return Column(name, "ignored")
    ordered = next((tuple(c.levels) for c in held.values() if c.kind == "ordered"), ())
    if kind == "ordered" and set(ordered) >= levels:
        return Column(name, "ordered", levels=ordered, missing=missing)
    if len(levels) == 2 and is_truth(levels):
        return Column(name, "binary", levels=TRUTH, missing=missing)
    return Column(name, "binary" if len(levels) == 2 else "category", levels=sorted_levels(levels), missing=missing)


def _kind(c: ColumnProfile, held: Mapping[str, ColumnProfile]) -> str:
    """The kind of a column at one site; texts that all differ are an id where they are one at a larger site."""
    as_id = c.kind == "category" and c.distinct and any(other.kind == "id" for other in held.values())
    return "id" if as_id else c.kind


def _number(name: str, held: Mapping[str, ColumnProfile], missing: tuple) -> Column:
    """A numeric column: binary when every site has 0 and 1 alone, positive when it is skewed at every site, else
    real.
    """
    numeric = [c for c in held.values() if c.kind in ("real", "binary")]
    values = {level for c in numeric for level in c.levels}
    if all(c.levels for c in numeric) and values <= {"0", "1"}:
        return Column(name, "binary", missing=missing)
    return Column(name, "positive" if all(map(_skewed, numeric)) else "real", missing=missing)


def _code(text: str) -> float | int | str:
    """A code for missing, as a number where it is one."""
    if not is_number(text):
        return text
    number = float(text)
    return number if not number.is_integer() else int(text)


def _skewed(c: ColumnProfile) -> bool:
    """Whether all numbers are above 0 and reach much further up than down, as concentrations and costs do."""
    if not (c.positive and c.quantiles):
        return False
    low, middle, high = c.quantiles[1:4]
    return high - middle > 1.3 * (middle - low)


def remedies(found: Sequence[Finding]) -> str:
    """Lines that single sites may need, as comments to be looked at: other names, columns that they lack, levels to be mapped."""
    by_site: dict[str, list[str]] = {}
    for f in found:
        if f.remedy:
            by_site.setdefault(f.site, []).append(f"# {f.remedy}")
    if not by_site:
        return ""
    lines = [
        "",
        "# how single sites may write them (at a node: in [data.columns], which lists all columns that it offers)",
    ]
    for site, remedies_of_site in by_site.items():
        lines += [f"# [sites.{key(site)}]", *remedies_of_site]
    return "\n".join(lines) + "\n"
