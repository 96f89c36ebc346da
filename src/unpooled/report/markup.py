"""HTML as text: sections, tables, facts, and a whole page with nothing from outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape, unescape
from typing import NamedTuple

from unpooled.report.style import CSS

MOST_ROWS = 40  # of a table that lists sites
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # a browser then loads nothing from outside


class Section(NamedTuple):
    """One heading of a page and what stands below it, as HTML."""

    title: str
    body: str


def page(title: str, header: str, sections: Sequence[Section]) -> str:
    """A whole HTML page: header, contents, sections."""
    shown = [s for s in sections if s.body]
    names = anchors([s.title for s in shown])
    links = "".join(f'<li><a href="#{name}">{escape(s.title)}</a></li>' for name, s in zip(names, shown))
    parts = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(s.title)}</h2>{s.body}</section>'
        for name, s in zip(names, shown)
    )
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(shown) > 2 else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>"
        f'<body><a class="skip" href="#main">Skip to the content</a><header>{header}{contents}</header>'
        f'<main id="main" tabindex="-1">{parts}</main></body></html>\n'
    )


def anchors(titles: Sequence[str]) -> list[str]:
    """A name for each title that a link can lead to, no two alike."""
    found: list[str] = []
    for title in titles:
        name = re.sub(r"\W+", "-", title.lower()).strip("-") or "part"
        found.append(name if name not in found else f"{name}-{len(found)}")
    return found


def table(
    head: Iterable[str],
    rows: Iterable[Iterable[str]],
    numbers: Iterable[int] = (),
    caption: str = "",
    roomy: bool = False,
    label: str = "",
) -> str:
    """A table of cells that are HTML already; the columns in `numbers` are right-aligned, the first one names its row.

    A roomy one has long cells: on a narrow screen each of its rows becomes a small list. `label` is for screen readers,
    where there is no caption.
    """
    names, right = list(head), set(numbers)
    row_role = ' role="row"' if roomy else ""
    top = "".join(f'<th scope="col"{_number_class(i, right)}>{escape(h)}</th>' for i, h in enumerate(names))
    body = "".join(f"<tr{row_role}>{_cells(row, names if roomy else [], right)}</tr>" for row in rows)
    caption_tag = f"<caption>{escape(caption)}</caption>" if caption else ""
    kind, role = ("wide roomy", ' role="table"') if roomy else ("wide", "")
    grid = f"<table{role}>{caption_tag}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f'<div class="{kind}" tabindex="0" role="group" aria-label="{escape(caption or label or "table")}">{grid}</div>'
    )


def _cells(row: Iterable[str], names: Sequence[str], right: set[int]) -> str:
    """The cells of a row; where `names` are given, each carries the name of its column for screens on which rows are stacked."""
    found = []
    for i, cell in enumerate(row):
        tag, more = ("th", ' scope="row"') if i == 0 else ("td", "")
        if names:
            more += f' role="{"rowheader" if i == 0 else "cell"}" data-head="{escape(names[i])}"'
        found.append(f"<{tag}{more}{_number_class(i, right)}>{cell}</{tag}>")
    return "".join(found)


def _number_class(i: int, right: set[int]) -> str:
    """The attribute that aligns a column of numbers to the right."""
    return ' class="n"' if i in right else ""


def capped(rows: Sequence[Iterable[str]], what: str) -> tuple[Sequence[Iterable[str]], str]:
    """The first rows of a long table, and a sentence on how many are left out."""
    if len(rows) <= MOST_ROWS:
        return rows, ""
    return rows[:MOST_ROWS], f" {len(rows) - MOST_ROWS:,} more {what} are not listed."


def facts(values: Mapping[str, str]) -> str:
    """Names and values as a row of small boxes."""
    boxes = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in values.items())
    return f'<dl class="facts">{boxes}</dl>'


def figure(picture: str, caption: str) -> str:
    """A picture with the sentence below it."""
    if not picture:
        return ""
    label = escape(unescape(re.sub(r"<[^>]*>", "", caption)))
    wide = ""
    if 'class="big"' in picture:
        wide = ' class="wide" tabindex="0" role="group" aria-label="picture, scrolls sideways"'
    named = picture.replace('role="img"', f'role="img" aria-label="{label}"', 1)
    return f"<figure><div{wide}>{named}</div><figcaption>{caption}</figcaption></figure>"


def side_by_side(*figures: str) -> str:
    """Figures next to each other where the screen is wide enough."""
    some = [f for f in figures if f]
    return f'<div class="figures">{"".join(some)}</div>' if some else ""


def folded(summary: str, body: str) -> str:
    """A part that opens when it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def bullets(lines: Iterable[str]) -> str:
    """Sentences (plain text) as a list."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="plain">{items}</ul>' if items else ""


def paragraph(text: str) -> str:
    """A sentence (plain text) as a paragraph."""
    return f"<p>{escape(text)}</p>"


def mark(text: str, good: bool = False) -> str:
    """A sentence (plain text) that stands out."""
    return f'<p class="mark{" ok" if good else ""}">{escape(text)}</p>'


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits or, below 1e9, all those before the point; "-" where there is none."""
    if value is None or value != value:
        return "-"
    whole = float(value).is_integer() or abs(value) >= 10**digits
    return f"{value:,.0f}" if whole and abs(value) < 1e9 else f"{value:.{digits}g}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """ "a, b and c", or the first few "and 7 more"."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
