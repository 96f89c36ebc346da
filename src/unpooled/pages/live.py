"""What a live page is: parts of HTML by name, sent again when they change."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Protocol

from unpooled.report.style import CSS

STYLE = (files("unpooled.pages") / "live.css").read_text(encoding="utf-8")
SCRIPT = (files("unpooled.pages") / "live.js").read_text(encoding="utf-8")


class Page(Protocol):
    """A page that follows changes while it is open."""

    title: str

    def parts(self) -> dict[str, str]:
        """Name -> HTML, in the order of the page."""
        ...

    def stamp(self) -> object:
        """Something that is equal as long as nothing has changed."""
        ...


def mark_of(html: str) -> str:
    """A short digest of a part, by which the page knows whether it has changed."""
    return sha256(html.encode()).hexdigest()[:16]


def document(title: str, lead: str, parts: Mapping[str, str], nonce: str, follows: bool = True) -> str:
    """A whole page, with the script that keeps its parts up to date."""
    body = "".join(
        f'<div class="part" id="part-{escape(name)}" data-mark="{mark_of(html)}">{html}</div>'
        for name, html in parts.items()
    )
    script = f'<script nonce="{nonce}">{SCRIPT}</script>' if follows else ""
    status = '<p class="soft status" id="status" role="status" aria-live="polite"></p>' if follows else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style nonce="{nonce}">{CSS}{STYLE}</style></head>'
        f'<body><a class="skip" href="#main">Skip to the content</a><header><h1>{escape(title)}</h1>{lead}{status}</header>'
        f'<main id="main" tabindex="-1">{body}</main>{script}</body></html>'
    )
