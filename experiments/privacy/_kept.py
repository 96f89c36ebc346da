"""Trials that were made are not made again: one JSON line each, written as soon as it is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


class Kept:
    """A file of trials: `kept.get(key, make)` reads what is there, or makes it and writes it down."""

    def __init__(self, file: Path):
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.known = {key: value for key, value in (json.loads(line) for line in lines)}

    def get(self, key: str, make: Callable[[], float]) -> float:
        if key not in self.known:
            self.known[key] = float(make())
            with self.file.open("a") as out:
                out.write(json.dumps([key, self.known[key]]) + "\n")
        return self.known[key]
