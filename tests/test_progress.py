"""Progress of a fit: a live line on a terminal, plain lines elsewhere."""

import io
import re
import sys
from types import SimpleNamespace

import pytest

from unpooled import progress

ESTIMATOR = SimpleNamespace(max_iter=90)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, file, rounds=3):
    """What `rounds` rounds write to a standard error."""
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    seen = progress.Progress()
    rows = [{"round": i + 1, "clients": 4, "bytes_up": 10, "loglik": -1.0} for i in range(rounds)]
    for i in range(rounds):
        seen(ESTIMATOR, SimpleNamespace(history=rows[: i + 1]))
        if seen.status is not None:
            seen.status._live.refresh()
    seen.close()
    return file.getvalue()


@pytest.mark.parametrize("width", [30, 80])
def test_the_live_line_moves_with_the_rounds_and_stays_one_line(monkeypatch, width):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    told = shown(monkeypatch, Terminal())
    for i in (1, 2, 3):
        assert f"round {i} of at most 90" in told
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", told).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= width
    assert told.count("\n") <= 1  # nothing is left behind above the line


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_without_a_terminal_lines_are_plain(monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    told = shown(monkeypatch, Terminal() if term == "dumb" else io.StringIO())
    assert told == "round 1 of at most 90, loglik -1, 4 clients, 10 B up\n"


def asked(seen, question):
    """What is written to standard error when an exchange begins."""
    journal, ask = SimpleNamespace(round=3), SimpleNamespace(name=question)
    seen.asking(SimpleNamespace(journal=journal, ask=ask, answered=1, asked=4))


def test_a_long_start_shows_its_exchanges(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    asked(progress.Progress(), "initialization.cells")
    assert not file.getvalue()  # short work shows nothing
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    asked(progress.Progress(quiet=True), "initialization.cells")
    assert not file.getvalue()
    asked(progress.Progress(), "initialization.cells")
    assert file.getvalue() == "exchange 3, initialization.cells, 1 of 4 clients answered\n"
