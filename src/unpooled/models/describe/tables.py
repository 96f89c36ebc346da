"""A description as text, HTML, frame and figures."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from unpooled.report import statistics, svg

MOST_SHADES = 30  # columns whose correlations are drawn
WITHHELD = "withheld"


def text(about: Any) -> str:
    """Table one with a column for all rows, each group and each site."""
    rows = cells(about)
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for first, *others in rows:
        numbers = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
        lines.append("  ".join([first.ljust(widths[0]), *numbers]))
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *_note(about, rows)])


def _note(about: Any, rows: list[list[str]]) -> list[str]:
    """What withheld means, where a cell is."""
    some = any(WITHHELD in cell for row in rows for cell in row[1:])
    return [f"{WITHHELD}: it would tell of fewer than {about.min_count} rows (min_count)"] if some else []


def html(about: Any) -> str:
    """Table one as an HTML table."""
    head, *body = rows = cells(about)
    top = f"<thead><tr>{_tags(head, 'th')}</tr></thead>"
    lines = [f"<tr>{_row_head(row[0])}{_tags(row[1:], 'td')}</tr>" for row in body]
    notes = [f'<tfoot><tr><td colspan="{len(head)}">{escape(note)}</td></tr></tfoot>' for note in _note(about, rows)]
    return "\n".join(["<table>", top, "<tbody>", *lines, "</tbody>", *notes, "</table>"])


def _tags(row: list[str], tag: str) -> str:
    """Cells of a row as HTML."""
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)


def _row_head(name: str) -> str:
    """The name of a line; what belongs to the line above is indented, as in the text."""
    inner = ' class="inner"' if name.startswith("  ") else ""
    return f'<th scope="row"{inner}>{escape(name.strip())}</th>'


def frame(about: Any) -> Any:
    """Table one as a pandas frame, one line per group and column."""
    import pandas as pd

    p = np.atleast_1d(np.asarray(about.probabilities, dtype=np.float64))
    parts = []
    for name, slot in slots(about).items():
        quantiles = {f"q{100 * q:g}": slot["quantiles"][i] for i, q in enumerate(p)}
        parts.append(pd.DataFrame({"group": name, "column": about.names_, **slot["table"], **quantiles}))
    return pd.concat(parts, ignore_index=True)


def slots(about: Any) -> dict[str, dict]:
    """The results of all rows, each group and each site, by name."""
    whole = {"rows": about.n_samples_, "table": about.table_, "quantiles": about.quantiles_, "levels": about.levels_}
    return {"all": whole, **{f"{_group(about)}{k}": v for k, v in about.groups_.items()}, **about.sites_}


def _group(about: Any) -> str:
    """How groups are called in the head of the table."""
    named = about.by if isinstance(about.by, str) or about.by is None else about.names_[int(about.by)]
    return f"{named} = "


def cells(about: Any) -> list[list[str]]:
    """Table one as rows of text: a head, then lines for every column."""
    found = slots(about)
    rows = [["", *found], ["rows", *(_number(s["rows"]) for s in found.values())]]
    for j, name in enumerate(about.names_):
        rows += _level_lines(about, found, j, name) if name in about.levels_ else _number_lines(about, found, j, name)
        rows += _missing_line(found, j)
    return rows


def _number_lines(about: Any, found: dict, j: int, name: str) -> list[list[str]]:
    """Lines of a numeric column: mean, standard deviation and quantiles; dates as dates, with a deviation in days."""
    shown = _day if _is_date(about, name) else _number
    title = f"{name}, mean (sd in days)" if shown is _day else f"{name}, mean (sd)"
    moments = []
    for slot in found.values():
        mean, sd = slot["table"]["mean"][j], slot["table"]["sd"][j]
        moments.append(f"{shown(mean)} ({_number(sd)})")
    lines = [[title, *moments]]
    for i, p in enumerate(np.atleast_1d(np.asarray(about.probabilities, dtype=np.float64))):
        quantiles = [shown(slot["quantiles"][i, j]) for slot in found.values()]
        lines.append([f"  {100 * p:g} % quantile", *quantiles])
    return lines


def _is_date(about: Any, name: str) -> bool:
    """Whether the column's schema says that its numbers are days since 1970."""
    return any(c["name"] == name and c["kind"] == "date" for c in getattr(about, "schema_", None) or [])


def _day(days: float) -> str:
    """The date that lies so many days after 1970-01-01; as other numbers where it is withheld."""
    return str(np.datetime64("1970-01-01") + int(np.floor(days))) if np.isfinite(days) else _number(days)


def _level_lines(about: Any, found: dict, j: int, name: str) -> list[list[str]]:
    """Lines of a column with levels: rows of each, and percent of the rows that have a value."""
    levels = [s["levels"][name] for s in found.values()]
    totals = [float(s["table"]["n"][j]) for s in found.values()]
    lines = [[f"{name}, n (%)", *("" for _ in found)]]
    for i, value in enumerate(levels[0]["values"]):
        lines.append(
            [
                f"  {_level_name(about, name, value)}",
                *(_share(level["rows"][i], total) for level, total in zip(levels, totals)),
            ]
        )
    if any(level["other"] > 0 for level in levels):
        lines.append(["  other", *(_share(level["other"], total) for level, total in zip(levels, totals))])
    return lines


def _level_name(about: Any, column: str, value: float) -> str:
    """The text that a code stands for where the column's schema has it, else the number."""
    entries = getattr(about, "schema_", None) or []
    levels: list = next((c.get("levels") or [] for c in entries if c["name"] == column), [])
    known = float(value).is_integer() and 0 <= value < len(levels)
    return str(levels[int(value)]) if known else plain(value)


def _missing_line(found: dict, j: int) -> list[list[str]]:
    """The line of missing values; nothing where none are missing."""
    gaps = [float(slot["table"]["missing"][j]) for slot in found.values()]
    if not any(gap > 0 for gap in gaps):
        return []
    shares = [_share(gap, slot["rows"]) for gap, slot in zip(gaps, found.values())]
    return [["  missing, n (%)", *shares]]


def _share(rows: float, total: float) -> str:
    """Rows and percent, or that they are withheld."""
    if np.isnan(rows):
        return WITHHELD
    return f"{_number(rows)} ({100 * rows / total:.1f})" if total > 0 else _number(rows)


def plain(value: float) -> str:
    """A level as people write it: 2, 0.5; different levels never look the same."""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def called(value: Any) -> str:
    """What a group is called: the text of its level, or its number."""
    return str(value) if isinstance(value, str) else plain(value)


def _number(value: float) -> str:
    """A number in four digits, or that it is withheld."""
    if np.isnan(value):
        return WITHHELD
    return plain(value) if float(value).is_integer() else f"{value:.4g}"


def figures(model: Any) -> dict[str, str]:
    """Table one, histograms and the size of correlations, for the report of a run."""
    figures = {"Table one": f'<div class="wide">{html(model)}</div>'}
    if model.histograms_:
        figures["Histograms"] = statistics.histograms(model.histograms_)
    unordered = {c["name"] for c in getattr(model, "schema_", []) if c["kind"] == "category"}
    some = [j for j, name in enumerate(model.names_) if name not in unordered]  # codes without order do not correlate
    if model.correlation_ is not None and 1 < len(some) <= MOST_SHADES:
        size = np.abs(np.nan_to_num(model.correlation_))[np.ix_(some, some)]
        names = [model.names_[j] for j in some]
        figures["Size of correlations"] = svg.shades(names, names, size)
    return figures
