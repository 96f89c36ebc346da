"""What FedBNR's intervals cover against what they promise, before and after recalibration, on one split of each UCI set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _pictures as pictures
import _protocol as protocol
import _runs as runs

import unpooled as up
from unpooled.metrics import regression as metrics
from unpooled.metrics.regression import Calibration

SEEDS = 1
CLIENTS = 10
DIFFERS = "The thesis prints calibration errors only (tables 3.2 and 3.3); `uci.py` has those for all splits."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    """One row a set and kind of interval; the picture is of the first split."""
    found: dict[tuple[str, int], dict[str, Calibration]] = {}
    for name in protocol.SETS[:1] if small else protocol.SETS:
        for seed in runs.seeds_of(name, seeds):
            found[name, seed] = curves(name, seed)
            say(
                f"{name}, split {seed}: "
                + ", ".join(f"{kind} ECE {c.ece:.3f}" for kind, c in found[name, seed].items())
            )
    draw({name: found[name, runs.seeds_of(name, 1).start] for name, _ in found}, out / "calibration.png")
    return [
        {"data": name, "split": seed, "method": f"FedBNR exact, {kind}", "metric": metric, "ours": getattr(seen, metric),
         "spread": 0.0, "paper": None}
        for (name, seed), kinds in found.items() for kind, seen in kinds.items() for metric in ("ece", "mce", "brier")
    ]  # fmt: skip


def curves(name: str, seed: int) -> dict[str, Calibration]:
    """Coverage on the test rows by normal intervals and by recalibrated ones."""
    split = protocol.split(name, seed, CLIENTS)
    model = runs.exact(name, split, seed).fit(up.federate(split.clients(), threads=1))
    normal = metrics.normal_interval(*model.predict(split.x_test, return_std=True))
    return {
        "as it comes": metrics.calibration(split.y_test, normal),
        "recalibrated": metrics.calibration(split.y_test, lambda level: model.interval(split.x_test, level)),
    }


def draw(kinds: dict[str, dict[str, Calibration]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(kinds), figsize=(3.4 * len(kinds), 4.4), squeeze=False, layout="constrained")
    for ax, (name, seen) in zip(axes[0], kinds.items()):
        pictures.calibration_curve(ax, seen).set_title(name)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize="small", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(fig)
