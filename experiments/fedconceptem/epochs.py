"""Table 3: one and five local epochs a round; clients that train longer alone drift apart, and concepts must still be found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _jobs as jobs
import _tables

SEEDS = 3
DIFFERS = _tables.DIFFERS + " The paper's table 3 is of CIFAR10, so no figure of theirs stands beside ours."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    wanted = jobs.epochs(range(seeds), 40 if small else 200, (1, 5))
    return _tables.run(wanted, small, out, say)
