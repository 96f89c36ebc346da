"""Progress of a fit: one live line on a terminal, a plain line every few seconds when piped. Nothing is sent."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

QUIET_SECONDS = 2.0  # nothing is shown for work shorter than this
PIPED_SECONDS = 10.0  # between two lines when standard error is not a terminal


class Progress:
    """Called with (estimator, moment) after each round; a `Moment` holds the history of the fit. Writes to standard error.

    Between rounds `asking` tells which exchange is open.
    """

    def __init__(self, quiet: bool = False):
        """Note the time and whether standard error is a terminal."""
        self.quiet = quiet
        self.began = time.monotonic()
        self.last = 0.0
        self.round_ended = self.began  # when a round ended last
        # checked once: the live line replaces standard error by something that is not a terminal
        self.terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.status: Any = None

    def __call__(self, estimator: Any, moment: Any) -> None:
        """Show how far the fit is, once it has lasted QUIET_SECONDS."""
        self.round_ended = time.monotonic()
        if moment.history and self.round_ended - self.began >= QUIET_SECONDS:
            self._show(line(estimator, moment))

    def asking(self, tally: Any) -> None:
        """Show which exchange is open, where no round has ended for QUIET_SECONDS: a start may take many exchanges."""
        if time.monotonic() - self.round_ended >= QUIET_SECONDS:
            answered = f"{tally.answered} of {tally.asked} clients answered"
            self._show(f"exchange {tally.journal.round}, {tally.ask.name}, {answered}")

    def _show(self, text: str) -> None:
        """The text on the live line, or as a line of its own if the last one is old enough."""
        if self.quiet:
            return
        if self.terminal:
            self._live(text)
        elif time.monotonic() - self.last > PIPED_SECONDS:
            self.last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def _live(self, text: str) -> None:
        """Show the text on the live line."""
        if self.status is None:
            from rich.console import Console

            self.status = Console(stderr=True).status("")
            self.status.start()
        width = self.status.console.width - 3  # a single line; the spinner takes two columns
        self.status.update(text[:width])

    def close(self) -> None:
        """End the live line."""
        if self.status is not None:
            self.status.stop()


def line(estimator: Any, moment: Any) -> str:
    """The line to show, such as "round 12 of at most 100, loglik -3.2104, 4 clients, 12.3 kB up"."""
    row = moment.history[-1] if moment.history else {}
    known = ("round", "seconds", "clients", "bytes_up", "bytes_down")
    metrics = [f"{k} {v:.6g}" for k, v in row.items() if k not in known and isinstance(v, int | float)]
    sent = sum(r.get("bytes_up", 0) for r in moment.history)
    return ", ".join(
        [
            f"round {len(moment.history)} of at most {estimator.max_iter}",
            *metrics[:2],
            f"{row.get('clients', 0)} clients",
            f"{size(sent)} up",
        ]
    )


def size(count: float) -> str:
    """A number of bytes as text: 12.3 kB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""
