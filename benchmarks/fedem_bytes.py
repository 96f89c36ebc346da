"""How many bytes does FedEM save on MNIST? PCA to 20, ten full Gaussians, 100 clients, the paper's start, against float64 EM.

Both have the same eigenvalue floor. Counted are the bytes really sent up until the likelihood is within 0.01 a row of where exact EM ends.
`--split chance` is all clients in every round; `--split label` has clients of one digit each, of which half take part in a round, and adds
the same run without memory. `--seeds`, `--rows`, `--rounds`, `--levels` make it smaller or other.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import unpooled as up
from unpooled.maths import families, mixture
from unpooled.maths.mixture import Params

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "fedem"))
from _mnist import clients, components, start

NEAR = 0.01
FAMILY = families.GaussianMixture(10, "full", floor=1e-2)


def fit(fed, x: np.ndarray, begin: Params, rounds: int, seed: int, every: int, **options) -> dict[str, np.ndarray]:
    """Likelihood of all rows a row after every so many rounds, and the bytes sent up until then."""
    model = up.FedEM(FAMILY, params_init=begin, tol=0, max_iter=rounds, random_state=seed, **options)
    at, likely, sent, bad = [], [], [], 0
    for moment in model.rounds(fed):
        done = len(moment.history)
        if done and done % every == 0:
            at.append(done)
            likely.append(float(mixture.log_density(model.result(moment.state), x, "full").mean()))
            sent.append(sum(row["bytes_up"] for row in moment.history))
            bad = sum(row["halved"] for row in moment.history)
    return {"rounds": np.array(at), "loglik": np.array(likely), "bytes": np.array(sent), "halved": bad}


def first_near(found: dict, target: float) -> tuple[float, float]:
    """(rounds, bytes) until the target; infinite if it was never reached."""
    reached = np.flatnonzero(found["loglik"] >= target)
    return (found["rounds"][reached[0]], found["bytes"][reached[0]]) if len(reached) else (np.inf, np.inf)


def trial(x: np.ndarray, y: np.ndarray, given: argparse.Namespace, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    fed, begin = up.federate(x, by=clients(y, given.split, rng)), start(x, rng)
    exact = fit(fed, x, begin, given.rounds, seed, 1)
    target = exact["loglik"][-1] - NEAR
    how = {"levels": given.levels, "fraction": 1.0 if given.split == "chance" else 0.5}
    ours = fit(fed, x, begin, given.rounds, seed, given.every, **how)
    (rounds, sent), (more_rounds, less) = first_near(exact, target), first_near(ours, target)
    row = {
        "bytes saved, times": sent / less,
        "rounds, times": more_rounds / rounds,
        "gap at the end": exact["loglik"][-1] - ours["loglik"][-1],
        "steps halved": ours["halved"],
    }
    if given.split == "label":
        without = fit(fed, x, begin, given.rounds, seed, given.every, memory="none", **how)
        row["gap without memory"] = exact["loglik"][-1] - without["loglik"][-1]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", choices=("chance", "label"), default="chance")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=70_000)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--levels", type=int, default=3)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    x, y = components(given.rows, 0)
    print(
        f"{len(x)} rows, {given.rounds} rounds, levels={given.levels}, split by {given.split}, {given.seeds} seeds",
        flush=True,
    )
    trials = []
    for seed in range(given.seeds):
        begin = time.process_time()
        trials.append(trial(x, y, given, seed))
        shown = ", ".join(f"{key} {value:.4g}" for key, value in trials[-1].items())
        print(f"  seed {seed}: {shown} ({time.process_time() - begin:.0f} s CPU)", flush=True)
    for key in trials[0]:
        values = np.array([t[key] for t in trials])
        print(f"  {key}: median {np.median(values):.4g}, from {values.min():.4g} to {values.max():.4g}")


if __name__ == "__main__":
    main()
