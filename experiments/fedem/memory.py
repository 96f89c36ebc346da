"""Without the memory V, compressed EM does not converge when clients are unlike: the paper argues it, this measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from _kept import kept
from _mnist import NEAR, Course, clients, components, exact, follow, library_start, likelihood
from _picture import picture

import unpooled as up

DIFFERS = (
    "the paper has no such experiment; ten Gaussians on MNIST's principal components, one digit a client, half of the 100 clients a round, "
    "7 levels, the library's own start."
)
SEEDS = 20
HOW: dict[str, Any] = {"levels": 7, "fraction": 0.5}
LEAST = 1e-4  # a likelihood a row that says nothing


def run(small: bool, seeds: int, out: Path, say) -> list[dict]:
    rows, rounds = (2_000, 20) if small else (10_000, 150)
    x, y = components(rows, 0)
    trials = []
    for seed in range(seeds):
        key = {"rows": rows, "rounds": rounds, "seed": seed}
        trials.append(kept(out / "memory.jsonl", key, trial, x, y, rounds, seed))
        say(
            f"seed {seed}: below exact EM by {trials[-1]['with memory']:.4f}, without memory by {trials[-1]['without memory']:.4f}"
        )
    draw(out / "memory.png", trials)
    return table(trials, f"{rounds} rounds, {rows} rows, {len(trials)} seeds")


def trial(x: np.ndarray, y: np.ndarray, rounds: int, seed: int) -> dict[str, Any]:
    fed = up.federate(x, by=clients(y, "label", np.random.default_rng(seed)), threads=1)
    begin = library_start(fed, seed)
    em = exact(fed, x, begin, rounds, seed)
    ours, without = (follow(fed, x, begin, rounds, seed, every=10, memory=m, **HOW) for m in ("statistics", "none"))
    return {
        "with memory": em.loglik[-1] - ours.loglik[-1],
        "without memory": em.loglik[-1] - without.loglik[-1],
        "bytes saved, times": em.first(em.loglik[-1] - NEAR)[1] / ours.first(em.loglik[-1] - NEAR)[1],
        "rounds, times": ours.first(em.loglik[-1] - NEAR)[0] / em.first(em.loglik[-1] - NEAR)[0],
        "diverged": diverged(ours, likelihood(begin, x)),
        "steps halved": ours.halved,
        "course": {
            name: list(em.loglik[-1] - c.loglik) for name, c in (("with memory", ours), ("without memory", without))
        },
    }


def diverged(course: Course, begin: float) -> bool:
    """Whether a run was ever below where it began, or no number."""
    return bool(not np.isfinite(course.loglik).all() or (course.loglik < begin).any())


def table(trials: list[dict], what: str) -> list[dict]:
    away = {name: np.array([t[name] for t in trials]) for name in ("with memory", "without memory")}
    farther = np.maximum(away["without memory"], LEAST) / np.maximum(away["with memory"], LEAST)
    saved, rounds = (np.array([t[name] for t in trials]) for name in ("bytes saved, times", "rounds, times"))
    lines = [(name, f"log-likelihood a row below exact EM, {what}", values) for name, values in away.items()]
    lines += [
        ("without memory", "times farther away than with it", farther),
        ("with memory", f"bytes saved until within {NEAR}, times", saved),
        ("with memory", f"rounds until within {NEAR}, times those of exact EM", rounds),
        ("with memory", "runs that diverged", np.array([float(t["diverged"]) for t in trials])),
    ]
    return [_line(method, metric, values) for method, metric, values in lines]


def _line(method: str, metric: str, values: np.ndarray) -> dict:
    middle = float(values.sum() if "runs" in metric else np.median(values))
    return {
        "method": method,
        "metric": metric,
        "ours": middle,
        "spread": f"{values.min():.4g} to {values.max():.4g}",
        "paper": None,
    }


def draw(path: Path, trials: list[dict]) -> None:
    with picture(path, 2) as panels:
        for panel, name in zip(panels, ("with memory", "without memory")):
            for t in trials:
                gaps = np.array(t["course"][name])
                panel.plot(10 * np.arange(1, len(gaps) + 1), gaps, lw=0.8)
            panel.set(title=name, xlabel="rounds", ylabel="log-likelihood a row below exact EM", ylim=(-0.05, 0.3))
            panel.axhline(0, color="black", lw=0.5)
