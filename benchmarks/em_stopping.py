"""Accelerated against plain EM where each stops by itself at tol = 1e-6: rounds, bytes up, and the log-likelihood at the end.

    python benchmarks/em_stopping.py --seed 2033

Problems are drawn from --seed: n from 3e3 to 2e4 and evenly in its logarithm, d from 2 to 12, K from 3 to 8, full and diag by turns,
nearest components 1.2 to 2.6 standard deviations apart, conditioning 1 to 100, three clients. Both fits begin at the same start (one
GATHER of local centres). A problem is hard if plain EM needs more than 100 rounds; the others are set aside before acceleration is
looked at, and of these the rounds that acceleration adds are shown.
"""

import argparse
import statistics
import warnings
from typing import NamedTuple

import numpy as np

import unpooled as up
from unpooled.data import synthetic

TOL, HARD, MOST = 1e-6, 100, 5000


class Problem(NamedTuple):
    clients: dict[str, np.ndarray]
    k: int
    shape: str
    text: str


class Fit(NamedTuple):
    rounds: int
    bytes_up: int
    loglik: float


def draw(seed: int, number: int) -> Problem:
    rng = np.random.default_rng([seed, number])
    shape, d, k = ("full", "diag")[number % 2], int(rng.integers(2, 13)), int(rng.integers(3, 9))
    n = int(np.exp(rng.uniform(*np.log([3e3, 2e4]))))
    made = synthetic.mixture(
        n,
        k,
        d,
        separation=float(rng.uniform(1.2, 2.6)),
        conditioning=float(10 ** rng.uniform(0, 2)),
        covariance_type=shape,
        clients=3,
        random_state=[seed, number],
    )
    return Problem(made.clients, k, shape, f"n={n:<6} d={d:<3} K={k} {shape:<5}")


def fitted(p: Problem, accelerate: bool) -> Fit:
    settings = {"covariance_type": p.shape, "tol": TOL, "max_iter": MOST, "init_params": "gather", "random_state": 0}
    model = up.GaussianMixture(p.k, accelerate=accelerate, **settings).fit(p.clients)
    return Fit(model.n_iter_, sum(row["bytes_up"] for row in model.history_), model.lower_bound_)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=2033)
    parser.add_argument("--problems", type=int, default=20, help="hard ones")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    hard, easy, number = list[tuple[Fit, Fit]](), list[int](), 0
    while len(hard) < args.problems:
        p = draw(args.seed, number)
        number += 1
        plain = fitted(p, False)
        fast = fitted(p, True)
        if plain.rounds <= HARD:
            easy.append(fast.rounds - plain.rounds)
            continue
        hard.append((plain, fast))
        print(
            f"{p.text} plain {plain.rounds:>5} rounds, accelerated {fast.rounds:>4}: {plain.rounds / fast.rounds:4.1f} times fewer, "
            f"{fast.bytes_up / plain.bytes_up:4.2f} of the bytes, log-likelihood {fast.loglik - plain.loglik:+.1e} per row",
            flush=True,
        )
    summary(args.seed, hard, easy)


def summary(seed: int, hard: list[tuple[Fit, Fit]], easy: list[int]) -> None:
    saved = [plain.rounds / fast.rounds for plain, fast in hard]
    sent = [fast.bytes_up / plain.bytes_up for plain, fast in hard]
    print(f"{len(hard)} hard problems of {len(hard) + len(easy)}, seed {seed}")
    print(f"rounds: median {statistics.median(saved):.1f} times fewer, {min(saved):.2f} to {max(saved):.1f}")
    print(f"bytes up: median {statistics.median(sent):.2f} of plain EM's, {min(sent):.2f} to {max(sent):.2f}")
    print(
        f"rounds above plain EM's at most: hard {max(f.rounds - p.rounds for p, f in hard)}, easy {max(easy, default=0)}"
    )
    print(f"log-likelihood per row against plain EM's: at least {min(f.loglik - p.loglik for p, f in hard):+.1e}")


if __name__ == "__main__":
    main()
