"""Draw the README's picture with the library itself: four clients, one fit without moving a row, and the pooled fit beneath it."""

import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Pooled

import unpooled as up
from unpooled.data import synthetic
from unpooled.maths import gaussian

OUT = Path(__file__).parent / "pictures" / "readme.png"
COLOURS = ("#3b6fb6", "#e08a2e", "#4a9d6f", "#8467b0")
NAMES = ("north", "east", "south", "west")


def ellipse(mean, cov, **style) -> Ellipse:
    values, vectors = np.linalg.eigh(cov)
    angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    return Ellipse(mean, *(4 * np.sqrt(values[::-1])), angle=angle, fill=False, **style)


def main() -> None:
    drawn = synthetic.mixture(1600, 4, 2, separation=3.2, conditioning=4, clients=4, alpha=0.35, random_state=20)
    clients = dict(zip(NAMES, drawn.clients.values()))
    gm = up.GaussianMixture(4, random_state=0, tol=1e-9, max_iter=2000)
    fed = up.federate(clients, mode="one by one")
    begin = next(iter(gm.rounds(fed))).state.candidates[0].params
    gm.fit(fed)
    x = np.concatenate(list(clients.values()))
    precisions = np.linalg.inv(gaussian.full_covs(begin, "full"))
    same_start = {"weights_init": begin.weights, "means_init": begin.means, "precisions_init": precisions}
    pooled = Pooled(4, **same_start, tol=0, max_iter=gm.n_iter_).fit(x)
    figure = plt.figure(figsize=(11, 4.4), layout="constrained")
    grid = figure.add_gridspec(2, 4, width_ratios=[1, 1, 0.08, 2.1])
    places = [grid[0, 0], grid[0, 1], grid[1, 0], grid[1, 1]]
    for place, (name, rows), colour in zip(places, clients.items(), COLOURS):
        axes = figure.add_subplot(place)
        axes.scatter(*rows.T, s=4, color=colour, alpha=0.5)
        axes.set_title(f"{name}: {len(rows)} rows that stay", fontsize=9)
        finish(axes, x)
    axes = figure.add_subplot(grid[:, 3])
    for rows, colour in zip(clients.values(), COLOURS):
        axes.scatter(*rows.T, s=3, color=colour, alpha=0.18)
    for mean, cov in zip(pooled.means_, pooled.covariances_):
        axes.add_patch(ellipse(mean, cov, ec="#bbbbbb", lw=6))
    for mean, cov in zip(gm.means_, gm.covariances_):
        axes.add_patch(ellipse(mean, cov, ec="#111111", lw=1.3))
    apart = max(np.abs(gm.means_ - pooled.means_).max(), np.abs(gm.covariances_ - pooled.covariances_).max())
    axes.plot([], [], color="#111111", lw=1.3, label=f"unpooled: {gm.n_iter_} rounds of one sum")
    axes.plot([], [], color="#bbbbbb", lw=6, label=f"pooled fit (largest difference {apart:.0e})")
    axes.legend(loc="upper left", fontsize=9, framealpha=0.9)
    finish(axes, x)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT, dpi=110)


def finish(axes, x) -> None:
    low, high = x.min(0), x.max(0)
    room = 0.12 * (high - low)
    axes.set(
        xlim=(low[0] - room[0], high[0] + room[0]), ylim=(low[1] - room[1], high[1] + room[1]), xticks=[], yticks=[]
    )
    for side in axes.spines.values():
        side.set_color("#cccccc")


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    main()
