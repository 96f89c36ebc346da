"""Without the memory V, compressed EM does not converge when clients are unlike: the paper argues it, this measures it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _mnist import clients, components, start

import unpooled as up
from unpooled.maths import families, mixture

DIFFERS = "the paper has no such experiment; ten Gaussians on MNIST's principal components, one digit a client, half of them a round."


def run(small: bool, seeds: int, out: Path, say) -> list[dict]:
    rows, rounds = (4_000, 25) if small else (70_000, 150)
    x, y = components(rows, 0)
    gaps: dict[str, list[float]] = {"with memory": [], "without memory": []}
    for seed in range(seeds):
        exact = end(x, y, seed, rounds)
        for name, memory in (("with memory", "statistics"), ("without memory", "none")):
            gaps[name].append(exact - end(x, y, seed, rounds, levels=7, fraction=0.5, memory=memory))
            say(f"seed {seed}, {name}: {gaps[name][-1]:.4f} a row below exact EM after {rounds} rounds")
    lines = ["method,seed,gap", *(f"{name},{s},{g:.6g}" for name, found in gaps.items() for s, g in enumerate(found))]
    (out / "memory.csv").write_text("\n".join(lines) + "\n")
    what = f"log-likelihood a row below exact EM after {rounds} rounds, {rows} rows, {seeds} seeds"
    return [
        {
            "method": name,
            "metric": what,
            "ours": float(np.mean(g)),
            "spread": f"{min(g):.4f} to {max(g):.4f}",
            "paper": None,
        }
        for name, g in gaps.items()
    ]


def end(x: np.ndarray, y: np.ndarray, seed: int, rounds: int, **options) -> float:
    """The log-likelihood a row at the end of a run."""
    rng = np.random.default_rng(seed)
    fed = up.federate(x, by=clients(y, "label", rng))
    family = families.GaussianMixture(10, "full", floor=1e-2)
    model = up.FedEM(family, params_init=start(x, rng), tol=0, max_iter=rounds, random_state=seed, **options).fit(fed)
    return float(mixture.log_density(model.params_, x, "full").mean())
