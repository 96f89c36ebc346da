"""FedEM and VR-FedEM fit ten Gaussians to MNIST's principal components over 100 clients; weights and |H|^2 by epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _kept import kept
from _mnist import clients, components
from _picture import picture
from _together import Draws, Setting, rounds

from unpooled import tree
from unpooled.models.fedem import families
from unpooled.models.fedem.families.common import Params

DIFFERS = (
    "p = 0.75, omega = 1 and alpha = 0.01 are those of the paper's synthetic example, which does not say them for MNIST; nor does it say "
    "how often VR-FedEM looks at all rows: here every 20 rounds with b = 20, and every 140 rounds with b = 5, which is the synthetic "
    "example's proportion (a quarter of FedEM's b, full passes and batches of alike many rows); columns are standardised, and eigenvalues "
    "of the covariance have a floor of 0.001 there."
)
SEEDS = 3
K, CLIENTS = 10, 100
FAMILY = families.CommonCovariance(K, "implied", floor=1e-3)
SHARED = {"step_size": 1e-3, "alpha": 0.01}
METHODS = {
    "FedEM": Setting(batch=20, **SHARED),
    "VR-FedEM": Setting(batch=20, epoch=20, **SHARED),
    "VR-FedEM, b = 5": Setting(batch=5, epoch=140, **SHARED),
}


def run(small: bool, seeds: int, out: Path, say) -> list[dict]:
    courses: dict[str, list[dict]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        for method in METHODS:
            courses[method].append(measured(method, seed, small, out))
            ends = (f"|{name[0]}|^2 {courses[method][-1][name][-1]:.3g}" for name in ("H2", "h2"))
            say(f"{method}, seed {seed}: {', '.join(ends)}")
    draw(out / "mnist.png", {method: found[0] for method, found in courses.items()})
    return [line(method, name, found) for name in ("H2", "h2") for method, found in courses.items()]


def measured(method: str, seed: int, small: bool, out: Path) -> dict:
    rows, epochs = (5_000, 20) if small else (70_000, 400)
    key = {"method": method, "rows": rows, "of": epochs, "seed": seed}
    return kept(out / "mnist.jsonl", key, course, *components(rows, 0), method, seed, epochs)


def line(method: str, name: str, found: list[dict]) -> dict:
    """The mean of a field over the last tenth of the work."""
    ends = [float(np.mean(c[name][-max(1, len(c[name]) // 10) :])) for c in found]
    what = f"{name[0]}^2 over the last tenth of {found[0]['of']} epochs, {len(ends)} seeds"
    return {
        "method": method,
        "metric": what,
        "ours": float(np.mean(ends)),
        "spread": f"{min(ends):.3g} to {max(ends):.3g}",
        "paper": None,
    }


def course(x: np.ndarray, y: np.ndarray, method: str, seed: int, epochs: int) -> dict[str, list]:
    """Epochs of work, |H|^2, |h|^2 and weights, about a hundred times."""
    rng = np.random.default_rng(seed)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    client = clients(y, "chance", rng)
    framed = x[np.argsort(client, kind="stable")].reshape(CLIENTS, -1, x.shape[1])
    every, seen = max(1, round(epochs / a_round(METHODS[method], framed.shape[1]) / 100)), []
    for point in rounds(FAMILY, framed, begin(x, rng), METHODS[method], Draws(seed, CLIENTS), every):
        if point.work > epochs * len(x):
            break
        seen.append((point.work / len(x), point.field, point.exact_field, point.params.weights.round(5).tolist()))
    return dict(zip(("epochs", "H2", "h2", "weights"), (list(c) for c in zip(*seen))))


def a_round(setting: Setting, rows: int) -> float:
    """The epochs that a round takes."""
    full, batch = (rows, 2 * setting.batch) if setting.epoch else (setting.batch, setting.batch)
    rounds = setting.epoch or 1
    return setting.fraction * (full + (rounds - 1) * batch) / rounds / rows


def begin(x: np.ndarray, rng: np.random.Generator) -> Params:
    """The paper's: equal weights, random rows, the covariance of all rows; the statistics of all rows under them."""
    total = np.cov(x.T, bias=True)
    first = Params(np.full(K, 1 / K), x[rng.choice(len(x), K, replace=False)], total, np.zeros(x.shape[1]), total)
    found = FAMILY.statistics(first, x, np.ones(len(x))).stats
    return FAMILY.maximize(tree.map(lambda s: s / len(x), found), first)


def draw(path: Path, courses: dict[str, dict]) -> None:
    """Seed 0, as the paper's figure 3: weights, then fields; the true field dashed."""
    with picture(path, 2 * len(courses)) as panels:
        for i, (method, c) in enumerate(courses.items()):
            panels[2 * i].plot(c["epochs"], c["weights"], lw=0.9)
            panels[2 * i].set(title=f"{method}: weights", xlabel="epochs")
            panels[2 * i + 1].semilogy(c["epochs"], c["H2"], lw=0.8)
            panels[2 * i + 1].semilogy(c["epochs"], c["h2"], "k--", lw=1)
            panels[2 * i + 1].set(title=f"{method}: $|H|^2$, $|h|^2$ dashed", xlabel="epochs")
