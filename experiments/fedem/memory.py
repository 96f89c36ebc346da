"""Without the memory V, compressed EM does not converge when clients are unlike: the paper argues it, this measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from _kept import kept
from _mnist import FAMILY, NEAR, Course, clients, components, exact, follow, library_start, likelihood
from _picture import picture

import unpooled as up

DIFFERS = (
    "the paper has no such experiment; ten Gaussians on MNIST's principal components, one digit a client, half of the 100 clients a round, "
    "7 levels, the library's own start; FedEM has twice the rounds of exact EM."
)
SEEDS, FIRST_SEED = 20, 10  # those before were looked at while it was put right
HOW: dict[str, Any] = {"levels": 7, "fraction": 0.5}
WHOLE, SMALL = (70_000, 100), (2_000, 20)  # rows, rounds of exact EM
MORE = 30  # rounds of exact EM
LEAST = 1e-4  # a likelihood a row that says nothing


def run(small: bool, seeds: int, out: Path, say) -> list[dict]:
    trials = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        trials.append(measured(small, seed, out))
        gaps = [f"{which} memory {trials[-1][f'{which} memory']:.4f}" for which in ("with", "without")]
        say(f"seed {seed}: below exact EM {', '.join(gaps)}")
    draw(out / "memory.png", trials)
    return table(trials)


def measured(small: bool, seed: int, out: Path) -> dict[str, Any]:
    rows, rounds = SMALL if small else WHOLE
    return kept(out / "memory.jsonl", {"rows": rows, "rounds": rounds, "seed": seed}, trial, rows, rounds, seed)


def trial(rows: int, rounds: int, seed: int) -> dict[str, Any]:
    x, y = components(rows, 0)
    fed = up.federate(x, by=clients(y, "label", np.random.default_rng(seed)), threads=1)
    begin = library_start(fed, seed)
    em = exact(fed, x, begin, rounds, seed)
    ours = follow(fed, x, begin, 2 * rounds, seed, every=10, **HOW)
    without = follow(fed, x, begin, rounds, seed, every=10, memory="none", **HOW)
    near = em.loglik[-1] - NEAR
    return {
        "with memory": em.loglik[-1] - ours.loglik[-1],
        "without memory": em.loglik[-1] - without.loglik[-1],
        "left with memory": left(ours, x),
        "left without memory": left(without, x),
        "bytes saved, times": em.first(near)[1] / ours.first(near)[1],
        "rounds, times": ours.first(near)[0] / em.first(near)[0],
        "diverged": diverged(ours, likelihood(begin, x)),
        "steps halved": ours.halved,
        "course": {
            name: list(em.loglik[-1] - c.loglik) for name, c in (("with memory", ours), ("without memory", without))
        },
    }


def left(course: Course, x: np.ndarray) -> float:
    """What exact EM still gains from where a run has ended: 0 at an optimum, whichever it is."""
    model = up.FedEM(FAMILY, params_init=course.end, tol=0, max_iter=MORE).fit(up.federate(x, threads=1))
    return likelihood(model.params_, x) - course.loglik[-1]


def diverged(course: Course, begin: float) -> bool:
    """Whether a run was ever below where it began, or no number."""
    return bool(not np.isfinite(course.loglik).all() or (course.loglik < begin).any())


def table(trials: list[dict]) -> list[dict]:
    of = {name: np.array([float(t[name]) for t in trials]) for name in trials[0] if name != "course"}
    farther, less = (
        np.maximum(of[f"{before}without memory"], LEAST) / np.maximum(of[f"{before}with memory"], LEAST)
        for before in ("", "left ")
    )
    below, still = (
        "log-likelihood a row below exact EM",
        f"log-likelihood a row that {MORE} rounds of exact EM still gain",
    )
    lines = [
        ("with memory", below, of["with memory"]),
        ("without memory", below, of["without memory"]),
        ("without memory", "times farther below exact EM than with it", farther),
        ("with memory", still, of["left with memory"]),
        ("without memory", still, of["left without memory"]),
        ("without memory", "times more than with it", less),
        ("with memory", f"bytes saved until within {NEAR}, times", of["bytes saved, times"]),
        ("with memory", f"rounds until within {NEAR}, times those of exact EM", of["rounds, times"]),
        ("with memory", f"runs that end within {NEAR} of exact EM or above it", of["with memory"] <= NEAR),
        ("with memory", "runs that diverged", of["diverged"]),
    ]
    return [_line(method, f"{metric}, {len(trials)} seeds", values) for method, metric, values in lines]


def _line(method: str, metric: str, values: np.ndarray) -> dict:
    counted = metric.startswith("runs")
    return {
        "method": method,
        "metric": metric,
        "ours": float(values.sum() if counted else np.median(values)),
        "spread": None if counted else f"{values.min():.4g} to {values.max():.4g}",
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
