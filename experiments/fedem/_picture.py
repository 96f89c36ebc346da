"""A picture of some panels side by side, as a small file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def picture(path: Path, panels: int) -> Iterator[Any]:
    """The panels to draw into; saved at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, panels, figsize=(4.4 * panels, 3.4), squeeze=False)
    yield axes[0]
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)
