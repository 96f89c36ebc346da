"""Two-dimensional pictures: the clusters that clients hold, and what OpenMixture and FedGEM make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from _data import real

import unpooled as up
from unpooled.metrics.clustering import score

SEEDS = 1
DIFFERS = "the paper's pictures are of its own data; these are of s1 and d31."


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    import matplotlib

    matplotlib.use("Agg")
    lines = []
    for name in ("r15",) if small else ("s1", "d31"):
        problem = real(name, 0)
        models = {"OpenMixture": up.OpenMixture(random_state=0), "FedGEM": up.FedGEM(problem.local_k, random_state=0)}
        for label, model in models.items():
            model.fit(problem.rows)
            found = score(problem.truth, model.labels_)
            lines.append(
                {
                    "case": name,
                    "method": label,
                    "ours": found.pooled_ari,
                    "spread": None,
                    "paper": None,
                    "K found": found.k,
                }
            )
        say(f"{name}: {draw(problem, models, out / f'{name}.png')}")
    return lines


def colours(labels: np.ndarray) -> np.ndarray:
    """(n, 4) the same colour for a cluster in every panel; above 20 clusters colours come again."""
    from matplotlib import colormaps

    return colormaps["tab20"](labels % 20)


def draw(problem, models: dict, file: Path) -> Path:
    """Three clients of their own above, all rows below, coloured by cluster."""
    from matplotlib import pyplot as plt

    file.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(
        len(models), 4, figsize=(14, 3.5 * len(models)), sharex=True, sharey=True, squeeze=False
    )
    names = sorted(problem.rows)
    for row, (label, model) in zip(axes, models.items()):
        for axis, name in zip(row, names[:3]):
            axis.scatter(*problem.rows[name].T, c=colours(model.labels_[name]), s=8)
            axis.set_title(f"{label}: client {name}", fontsize=9)
        x, z = (np.concatenate([part[n] for n in names]) for part in (problem.rows, model.labels_))
        row[3].scatter(*x.T, c=colours(z), s=2)
        row[3].set_title(f"all clients, K = {model.n_components_}", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)
    return file
