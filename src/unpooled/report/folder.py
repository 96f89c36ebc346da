"""What a run folder holds, read for reports, cards and live pages; a run that is still going on can be read too."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from unpooled import config as configs
from unpooled.errors import RunError
from unpooled.saving import load


class RunFolder(NamedTuple):
    """The files of a run folder."""

    folder: Path
    config: configs.Config
    history: list[dict]  # one row per round
    ledger: list[dict]  # one row per exchange
    refusals: list[dict]
    summary: dict[str, Any]  # empty until the run has ended
    begun: dict[str, Any]  # run.json: when it began, by which version
    model: Any  # the fitted model, or None
    facts: dict[str, str]

    @property
    def name(self) -> str:
        """The name of the model's class."""
        return str(self.config["model"]["name"])

    @property
    def columns(self) -> list[str]:
        """The names of the columns; x0, x1, ... where they have none."""
        known = self.summary.get("columns") or getattr(self.model, "columns_", None)
        return [str(c) for c in known] if known else [f"x{j}" for j in range(getattr(self.model, "n_features_in_", 0))]

    @property
    def features(self) -> list[str]:
        """The names of what the model has a coefficient for: an indicator for each level but the first, where columns hold texts."""
        own = getattr(self.model, "columns_", None)
        return [str(c) for c in own] if own else self.columns

    @property
    def clients(self) -> dict[str, dict]:
        """Client -> what may be shown of it."""
        return self.summary.get("clients", {})


def read(folder: Path) -> RunFolder:
    """Read a run folder; RunError if it is none."""
    if not (folder / "config.toml").exists():
        raise RunError(f"{folder} is not a run: there is no config.toml in it")
    config = configs.read(folder / "config.toml")
    configs.estimator(config)  # imports the questions, whose docstrings are shown
    history, ledger, refusals = (lines(folder / f"{name}.jsonl") for name in ("history", "ledger", "refusals"))
    model = load(folder) if (folder / "model" / "model.zip").exists() else None
    return RunFolder(
        folder,
        config,
        history,
        ledger,
        refusals,
        contents(folder / "summary.json"),
        contents(folder / "run.json"),
        model,
        contents(folder / "facts.json"),
    )


def lines(path: Path) -> list[dict]:
    """The rows of a file of JSON lines; a line that is being written is left out."""
    if not path.exists():
        return []
    found = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            found.append(json.loads(text))
        except (ValueError, RecursionError):
            continue
    return found


def contents(path: Path) -> dict[str, Any]:
    """A JSON file; empty if it is not there."""
    return json.loads(path.read_text()) if path.exists() else {}


def when(text: str) -> str:
    """A moment for people: 16 November 2026, 13:15 UTC."""
    moment = datetime.fromisoformat(text)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def duration(seconds: float) -> str:
    """A time span for people: 3.2 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def wall_time(run: RunFolder) -> float | None:
    """Seconds from the last start of the run to its end, where both are known."""
    starts = run.begun.get("starts")
    end = run.summary.get("finished")
    if not starts or not end:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(starts[-1])).total_seconds()
