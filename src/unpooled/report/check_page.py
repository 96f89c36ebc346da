"""The page of a check: what differs between sites' tables, and what each column is at each site; as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from unpooled.data.check import ColumnProfile, Finding, Profile
from unpooled.report.page import CSS, table

NO_FINDING = "The tables match: nothing was found that a fit would stumble over."


def text(profiles: Sequence[Profile], findings: Sequence[Finding]) -> str:
    """The page for a terminal."""
    lines = [f"{len(profiles)} sites, {sum(p.rows for p in profiles)} rows", ""]
    lines += _grid(profiles)
    lines += ["", *([f"{len(findings)} to look at:"] if findings else [NO_FINDING])]
    lines += [f"  {f.site or 'all sites'}: {f.text}" for f in findings]
    return "\n".join(lines)


def _grid(profiles: Sequence[Profile]) -> list[str]:
    """One line per column, one field per site."""
    sites = [p.name for p in profiles]
    counts = [str(p.rows) for p in profiles]
    rows = [["column", *sites], ["rows", *counts]]
    for name in _names(profiles):
        rows.append([name, *(_cell(p, name) for p in profiles)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        fields = [field.ljust(width) for field, width in zip(row, widths)]
        lines.append("  ".join(fields).rstrip())
    return lines


def _names(profiles: Sequence[Profile]) -> list[str]:
    """Names of all columns, in the order in which sites have them."""
    return list(dict.fromkeys(name for p in profiles for name in p.names))


def _cell(p: Profile, name: str) -> str:
    """What a column is at a site: kind, median or levels, and missing values."""
    if p.problem:
        return "?"
    if name not in p.names:
        return "-"
    c = p[name]
    gaps = f", {c.missing:.0%} missing" if c.missing >= 0.005 else ""
    return f"{c.kind}{_values(c)}{gaps}"


def _values(c: ColumnProfile) -> str:
    """The number of levels, or the median."""
    if c.kind in ("category", "ordered"):
        return f" of {len(c.levels)}"
    return f" {c.quantiles[2]:.4g}" if c.quantiles and c.kind not in ("id", "date") else ""


def page(profiles: Sequence[Profile], findings: Sequence[Finding], toml: str) -> str:
    """The page as one HTML file."""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Check of tables</title><style>{CSS}</style>'
    return f"{head}<body>{body(profiles, findings, toml)}</body></html>"


def body(profiles: Sequence[Profile], findings: Sequence[Finding], toml: str) -> str:
    """The page's contents."""
    lead = f"{len(profiles)} sites, {sum(p.rows for p in profiles)} rows"
    rows = [["rows", *(str(p.rows) for p in profiles)]]
    rows += [[escape(name), *(escape(_cell(p, name)) for p in profiles)] for name in _names(profiles)]
    grid = table(["column", *(p.name for p in profiles)], rows)
    what = "The kind of each column, the median of numbers, the number of levels."
    return (
        f'<h1>Check of tables</h1><p class="lead">{escape(lead)}</p>'
        f"<h2>To look at</h2>{_list(findings)}"
        f"<h2>Columns by site</h2><p>{what}</p>{grid}"
        f"<h2>[columns] to start from</h2><pre>{escape(toml)}</pre>"
    )


def _list(findings: Sequence[Finding]) -> str:
    """The findings as a table."""
    if not findings:
        return f"<p>{NO_FINDING}</p>"
    return table(
        ["site", "what", "finding"], [[escape(v) for v in (f.site or "all", f.what, f.text)] for f in findings]
    )
