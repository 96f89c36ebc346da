"""Measurements that are kept: one line of JSON each in a file, never made twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kept(file: Path, key: dict[str, Any], measure: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """The line that has this key, measured from what is given and added if there is none."""
    lines = file.read_text().splitlines() if file.exists() else []
    for row in map(json.loads, lines):
        if all(row.get(name) == value for name, value in key.items()):
            return row
    row = key | measure(*given)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab", buffering=0) as out:  # in one piece, so that runs side by side do not mix their lines
        out.write(json.dumps(row).encode() + b"\n")
    return row
