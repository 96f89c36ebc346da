"""The one style sheet of reports, cards and live pages: readable at 360 px, on a laptop and on paper."""

from importlib.resources import files

CSS = (files("unpooled.report") / "style.css").read_text(encoding="utf-8")
