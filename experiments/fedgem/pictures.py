"""Two-dimensional pictures: what clients hold, and what methods make of it; a cluster has one colour in all panels of a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _data import Problem, real
from _methods import METHODS, TOLD
from engines import fleets
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from unpooled.metrics.clustering import score

SEEDS = 1
DIFFERS = (
    "the paper's pictures are of its own data; these are of s1, d31, pendigits and the turbofans of engines.py. Pendigits has 16 "
    "columns and is drawn in the two directions that tell its digits apart best, which no method was told; turbofans are drawn in "
    "their principal axes."
)
DRAWN = ("OpenMixture auto", "FedGEM", "k-FED", "central GMM")
CLIENTS = 3
MOST = 4000  # rows drawn


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    lines = []
    for name in ("r15",) if small else ("s1", "d31", "pendigits", "engines"):
        problem = fleets(0) if name == "engines" else real(name, 0)
        labels = {m: METHODS[m][1](problem, 0).fit(problem.rows).labels_ for m in DRAWN}
        for method, found in labels.items():
            got = score(problem.truth, found)
            line = {"case": name, "method": method, "told": TOLD[method] or "nothing", "ours": got.pooled_ari}
            lines.append(
                line | {"spread": None, "paper": None, "client ARI": got.client_ari, "K": problem.k, "K found": got.k}
            )
        say(f"{name}: {draw(name, problem, labels, out / f'{name}.png')}")
    return lines


def flat(problem: Problem) -> dict[str, np.ndarray]:
    """client -> (n, 2): rows as they are, or of more columns the two directions that part classes most (two classes: that vary most)."""
    names = sorted(problem.rows)
    x, y = (np.concatenate([part[n] for n in names]) for part in (problem.rows, problem.truth))
    if x.shape[1] > 2:
        axes = LinearDiscriminantAnalysis(n_components=2) if problem.k > 2 else PCA(2)
        x = axes.fit(x, y).transform(x)
    ends = np.cumsum([len(problem.truth[n]) for n in names])
    return dict(zip(names, np.split(x, ends[:-1])))


def renamed(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """(n,) each found cluster under the number of the true one it shares most rows with; those left over get -1."""
    _, z = np.unique(found, return_inverse=True)
    table = np.zeros((truth.max() + 1, z.max() + 1))
    np.add.at(table, (truth, z), 1)
    i, j = linear_sum_assignment(-table)
    name = np.full(z.max() + 1, -1)
    name[j] = i
    return name[z]


def palette(k: int) -> np.ndarray:
    """(k + 1, 4) colours of which neighbours in number differ much; black last, for -1."""
    from matplotlib.colors import hsv_to_rgb

    hue = (np.arange(k) * 0.381966) % 1.0  # the golden section
    bright = np.array([0.95, 0.65, 0.8])[np.arange(k) % 3]
    colours = hsv_to_rgb(np.stack([hue, np.full(k, 0.75), bright], axis=1))
    return np.concatenate([np.c_[colours, np.ones(k)], [[0, 0, 0, 1]]])


def draw(name: str, problem: Problem, labels: dict[str, dict], file: Path) -> Path:
    """Above, three clients and all together in true colours; below, each method's clusters, wrongly placed rows as black crosses."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    spots, names, colours = flat(problem), sorted(problem.rows), palette(problem.k)
    x, y = (np.concatenate([part[n] for n in names]) for part in (spots, problem.truth))
    wide = problem.rows[names[0]].shape[1]
    how = "that part the true clusters best" if problem.k > 2 else "in which rows vary most"
    note = "" if wide == 2 else f" ({wide} columns, drawn in the two directions {how})"
    shown = np.random.default_rng(0).permutation(len(x))[:MOST]
    figure, axes = plt.subplots(2, 4, figsize=(15, 8), sharex=True, sharey=True)
    for axis, client in zip(axes[0, :CLIENTS], names[:: max(1, len(names) // CLIENTS)]):
        axis.scatter(*x[shown].T, c="0.9", s=2)
        axis.scatter(*spots[client].T, c=colours[problem.truth[client]], s=12)
        held = len(np.unique(problem.truth[client]))
        axis.set_title(f"rows of client {client!r}: {held} cluster{'s' if held > 1 else ''}")
    axes[0, 3].scatter(*x[shown].T, c=colours[y[shown]], s=3)
    axes[0, 3].set_title(f"all {len(names)} clients: {problem.k} true clusters")
    for axis, (method, found) in zip(axes[1], labels.items()):
        z = np.concatenate([np.asarray(found[n]) for n in names])
        _outcome(axis, x[shown], y[shown], renamed(y, z)[shown], colours)
        got = score(problem.truth, found)
        axis.set_title(f"{method}, told {TOLD[method] or 'nothing'}\n{got.k} clusters, ARI {got.pooled_ari:.3f}")
    for axis in axes.ravel():
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle(
        f"{name}{note}. Above: nobody sees more than one client's rows (grey: all the others').\n"
        "Below: what methods find; black crosses are rows put into another cluster than the true one. "
        "Told K: the number of clusters; told K_g: how many each client holds."
    )
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=80)
    plt.close(figure)
    return file


def _outcome(axis: Any, x: np.ndarray, y: np.ndarray, z: np.ndarray, colours: np.ndarray) -> None:
    right = y == z
    axis.scatter(*x[right].T, c=colours[z[right]], s=3)
    axis.scatter(*x[~right].T, c="black", marker="x", s=9, linewidth=0.7)
