"""FedBNR's figures 3.2 and 3.4: a global process serves a new client with few rows, personal and combined ones do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import _pictures as pictures
import numpy as np

import unpooled as up
from unpooled import tree
from unpooled.maths import bayes_linear
from unpooled.maths.bayes_linear import Stats

SEEDS = 10
DIFFERS = (
    "The thesis does not print its function: ours is sin(x) + x / 3. pFedGP and FedLoc are last layers of single clients under the same "
    "kernel, which is learned from all rows as there; FedLoc combines them as a product of experts."
)
NOISE, FEW = 0.5, (1, 2, 5, 10, 20, 50, 100)
RANGES = {"new client in [-5, 5]": (-5, 5), "new client in [5, 15]": (5, 15)}
GRID = np.linspace(-5, 5, 200)


def truth(x: np.ndarray) -> np.ndarray:
    return np.sin(x) + x / 3


def rows(lo: float, hi: float, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = np.sort(rng.uniform(lo, hi, n))
    return x, truth(x) + NOISE * rng.normal(size=n)


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    found: dict[tuple, list[float]] = {}
    for seed in range(seeds):
        say(f"seed {seed}")
        for key, error in new_clients(seed).items():
            found.setdefault(key, []).append(error)
    out.mkdir(parents=True, exist_ok=True)
    draw_global_and_personal(out / "figure-3.4-top.png")
    draw_new_clients(found, out / "figure-3.4-bottom.png")
    draw_step(out / "figure-3.2.png")
    return [
        {"method": method, "data": where, "rows of the new client": n, "metric": "MSE", "ours": float(np.mean(errors)),
         "spread": float(np.std(errors)), "paper": None}
        for (method, where, n), errors in found.items()
    ]  # fmt: skip


def central(x: np.ndarray, y: np.ndarray, seed: int) -> up.FedBNR:
    """The kernel of all rows, its last layer that of both clients."""
    settings = {"n_frequencies": 50, "max_iter": 25, "validation_fraction": 0.0, "recalibrate": False}
    halves = (np.arange(len(x)) >= len(x) // 2).astype(int)
    return up.FedBNR("exact", random_state=seed, **settings).fit(x[:, None], y, by=halves)


def sums(model: up.FedBNR, x: np.ndarray, y: np.ndarray) -> Stats:
    """The statistics of some rows under the model's kernel."""
    scaling = model.design_.scaling
    return bayes_linear.statistics(
        model._features(x[:, None]), ((y - scaling.y_mean) / scaling.y_scale)[:, None], np.ones(len(x))
    )


def predict(model: up.FedBNR, stats: Stats) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance of the function) on the grid by a last layer fitted to `stats`, at the model's noise and prior."""
    known = model.posterior
    post = bayes_linear.posterior(stats, noise=known.noise_variance, prior=known.prior_variance)
    mean, variance = bayes_linear.predict(post, model._features(GRID[:, None]))
    scaling = model.design_.scaling
    return (scaling.y_mean + scaling.y_scale * mean)[:, 0], (scaling.y_scale**2 * (variance - known.noise_variance))[
        :, 0
    ]


def new_clients(seed: int) -> dict[tuple[str, str, int], float]:
    """Mean squared error on [-5, 5] once a client of n rows has come in."""
    rng = np.random.default_rng(seed)
    x, y = rows(-5, 5, 200, rng)
    model = central(x, y, seed)
    old = [sums(model, x[:100], y[:100]), sums(model, x[100:], y[100:])]
    errors = {}
    for where, (lo, hi) in RANGES.items():
        more = rng.permutation(np.stack(rows(lo, hi, max(FEW), rng), 1))
        for n in FEW:
            new = sums(model, more[:n, 0], more[:n, 1])
            guesses = {
                "FedBNR": predict(model, tree.add(tree.add(*old), new))[0],
                "pFedGP": predict(model, new)[0],
                "FedLoc": combine([predict(model, s) for s in (*old, new)]),
            }
            for method, guess in guesses.items():
                errors[method, where, n] = float(np.mean((guess - truth(GRID)) ** 2))
    return errors


def combine(experts: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Generalised product of experts: means weighted by precision."""
    precision = np.array([1 / np.maximum(v, 1e-12) for _, v in experts])
    return (precision * np.array([m for m, _ in experts])).sum(0) / precision.sum(0)


# ---- pictures ----


def canvas(columns: int):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(1, columns, figsize=(5 * columns, 3.5), sharey=True, layout="constrained")


def draw_global_and_personal(path: Path) -> None:
    x, y = rows(-5, 5, 200, np.random.default_rng(0))
    model = central(x, y, 0)
    fig, axes = canvas(2)
    pictures.band(axes[1], model, GRID, rows=(x, y), truth=truth)
    axes[1].set_title("global: FedBNR")
    model.forget("1")
    pictures.band(axes[0], model, GRID, rows=(x[:100], y[:100]), truth=truth)
    axes[0].set_title("personal: client 1 alone, same kernel")
    fig.savefig(path, dpi=120)


def draw_new_clients(found: dict[tuple, list[float]], path: Path) -> None:
    fig, axes = canvas(2)
    for ax, where in zip(axes, RANGES):
        for method in ("FedBNR", "pFedGP", "FedLoc"):
            ax.plot(FEW, [np.mean(found[method, where, n]) for n in FEW], "o-", label=method)
        ax.set(xscale="log", yscale="log", xlabel="rows of the new client", ylabel="MSE on [-5, 5]", title=where)
        ax.legend()
    fig.savefig(path, dpi=120)


def draw_step(path: Path) -> None:
    """A step function by replicated inputs, and by a network with shifted frequencies."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 120))
    y = (x > 0) + 0.1 * rng.normal(size=120)
    fig, axes = canvas(2)
    for ax, (features, frequencies) in zip(axes, (("replicated", "fixed"), ("deep", "shifted"))):
        model = up.FedBNR(
            features=features, frequencies=frequencies, n_frequencies=30, hidden=(8,), latent_dim=2, max_iter=150, patience=150,
            validation_fraction=0.0, recalibrate=False, random_state=0,
        ).fit(x[:, None], y)  # fmt: skip
        pictures.band(ax, model, np.linspace(-3, 3, 300), rows=(x, y))
        ax.set_title(f"{features} inputs" if features == "replicated" else "network and shifted frequencies")
    fig.savefig(path, dpi=120)
