"""How many bytes does FedEM save on MNIST? PCA to 20, ten full Gaussians, 100 clients at random, against float64 EM.

Counted are the bytes really sent up until the likelihood is within 0.01 a row of where exact EM ends, and the rounds it takes; exact EM and
FedEM(levels=3) have the same start and eigenvalue floor: the library's own start, and the paper's, random rows and one covariance, from
where EM crosses a long plateau. Seeds are below 100, the settings were found on others.
Finished trials are kept in `--out` and not made again. Clients split by label: `unpooled reproduce fedem/memory`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import unpooled as up

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "fedem"))
from _kept import kept
from _mnist import NEAR, clients, components, exact, follow, library_start, start


def trial(given: argparse.Namespace, begin_at: str, seed: int) -> dict[str, float]:
    x, y = components(given.rows, 0)
    rng = np.random.default_rng(seed)
    fed = up.federate(x, by=clients(y, "chance", rng), threads=1)
    begin = library_start(fed, seed) if begin_at == "library" else start(x, rng)
    em = exact(fed, x, begin, given.rounds, seed)
    target = em.loglik[-1] - NEAR
    ours = follow(fed, x, begin, given.rounds, seed, until=target, levels=given.levels)
    (em_rounds, sent), (our_rounds, our_sent) = em.first(target), ours.first(target)
    return {
        "bytes saved, times": sent / our_sent,
        "rounds, times": our_rounds / em_rounds,
        "rounds of exact EM": em_rounds,
        "steps halved": ours.halved,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--rows", type=int, default=70_000, help="of 70000")
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--levels", type=int, default=3)
    parser.add_argument("--start", choices=("library", "paper"), nargs="+", default=("library", "paper"))
    parser.add_argument("--out", type=Path, default=Path("out/fedem_bytes.jsonl"))
    given = parser.parse_args()
    for begin in given.start:
        print(
            f"{given.rows} rows, {given.rounds} rounds, levels={given.levels}, {begin}'s start, 100 clients, {given.seeds} seeds"
        )
        shown([measured(given, begin, seed) for seed in range(given.first, given.first + given.seeds)])


def measured(given: argparse.Namespace, begin: str, seed: int) -> dict[str, float]:
    key = {name: getattr(given, name) for name in ("rows", "rounds", "levels")} | {"start": begin, "seed": seed}
    row = kept(given.out, key, trial, given, begin, seed)
    found = {name: value for name, value in row.items() if name not in key}
    print(f"  seed {seed}: {', '.join(f'{name} {value:.4g}' for name, value in found.items())}", flush=True)
    return found


def shown(trials: list[dict[str, float]]) -> None:
    for name in trials[0]:
        values = np.array([t[name] for t in trials])
        print(f"  {name}: median {np.median(values):.4g}, from {values.min():.4g} to {values.max():.4g}")
    saved, rounds = (np.array([t[name] for t in trials]) for name in ("bytes saved, times", "rounds, times"))
    print(f"  at least 16 times fewer bytes on all: {bool((saved >= 16).all())}")
    print(f"  at most 1.2 times the rounds on all: {bool((rounds <= 1.2).all())}")


if __name__ == "__main__":
    main()
