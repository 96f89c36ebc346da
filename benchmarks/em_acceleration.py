"""Rounds to plain EM's final likelihood, accelerated against plain, on mixtures whose plain EM needs more than 200 rounds.

Problems are drawn from --seed: n from 1e4 to 1e5 and so evenly in its logarithm, d from 2 to 20, K from 3 to 10, full and diag by
turns, nearest components 1.5 to 3 standard deviations apart, conditioning 1 to 100. Both fits start from the best of ten starts
after ten rounds. Plain EM stops when a round gains less than 1e-9 a row, or after 4000; problems that get there within 200 rounds
are set aside before acceleration is looked at. "Reached" is within 1e-6 a row of the plain end; "in all" are the rounds until the
accelerated fit stops by itself at the same 1e-9. An accelerated round asks about up to five mixtures: "sent" counts them.
With --scarce, n is such that a parameter has 5 to 30 rows: small components then fit noise, the likelihood has many near maxima,
and which of them a fit ends in can depend on its path.
"""

import argparse
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from unpooled.data import synthetic
from unpooled.data.federate import federate
from unpooled.local import Local
from unpooled.maths.mixture import Params, m_step
from unpooled.models import initialization as start
from unpooled.models.mixture import race
from unpooled.models.mixture.em import e_step

REG, PLAIN_GAIN, MOST_ROUNDS, HARD, NEAR = 1e-6, 1e-9, 4000, 200, 1e-6
STARTS, SHORT = 10, 10  # starts, and the rounds after which the best goes on
SCARCE = 5, 30  # rows a parameter


class Problem(NamedTuple):
    seed: int
    n: int
    d: int
    k: int
    shape: str
    separation: float
    conditioning: float


class Outcome(NamedTuple):
    problem: Problem
    plain: int  # rounds to the plain end, within NEAR
    fast: int | None
    worse: float  # by how much the accelerated end is below the plain one, per row
    total: int  # rounds until the accelerated fit stopped
    sent: int  # mixtures asked about in them


def draw(seed: int, number: int, scarce: bool) -> Problem | None:
    """None where no n within the bounds gives a parameter its rows."""
    rng = np.random.default_rng([seed, number])
    shape, d, k = ("full", "diag")[number % 2], int(rng.integers(2, 21)), int(rng.integers(3, 11))
    numbers = k * (1 + d + (d * (d + 1) // 2 if shape == "full" else d))
    least, most = (max(SCARCE[0] * numbers, 1e4), min(SCARCE[1] * numbers, 1e5)) if scarce else (1e4, 1e5)
    n = int(np.exp(rng.uniform(*np.log([least, max(least, most)]))))
    separation, conditioning = float(rng.uniform(1.5, 3)), float(10 ** rng.uniform(0, 2))
    return Problem(number, n, d, k, shape, separation, conditioning) if least <= most else None


def begin(seed: int, p: Problem) -> tuple[Local, Params]:
    made = synthetic.mixture(
        p.n,
        p.k,
        p.d,
        separation=p.separation,
        conditioning=p.conditioning,
        covariance_type=p.shape,
        clients=5,
        random_state=[seed, p.seed],
    )
    fed = federate(made.clients, threads=1)
    frame = start.frame(fed)
    local = start.centres(fed, frame, p.k, 5)
    rngs = np.random.default_rng([seed, p.seed, 1]).spawn(STARTS)
    tried = [start.from_centres(frame, start.cluster_centres(local, p.k, rng), p.shape) for rng in rngs]
    for _ in range(SHORT):
        stats = fed.sum(e_step.using(shape=p.shape), tuple(tried))  # all of them ride in the same rounds
        tried = [m_step(params, s, p.shape, REG) for params, s in zip(tried, stats)]
    return fed, tried[int(np.argmax([s.loglik for s in stats]))]


def plain_em(fed: Local, params: Params, shape: str) -> list[float]:
    found: list[float] = []
    while len(found) < MOST_ROUNDS:
        (stats,) = fed.sum(e_step.using(shape=shape), (params,))
        found.append(float(stats.loglik / stats.rows))
        if len(found) > 1 and found[-1] - found[-2] < PLAIN_GAIN:
            break
        params = m_step(params, stats, shape, REG)
    return found


def accelerated(fed: Local, params: Params, shape: str, rounds: int) -> tuple[list[float], int]:
    """The likelihood by round, and how many mixtures were asked about."""
    paths, found, sent = race.start(params, shape), list[float](), 0
    while len(found) < rounds and not race.settled(paths):
        asked = race.asked(paths)
        paths, sent = (
            race.advance(paths, fed.sum(e_step.using(shape=shape), asked), shape, REG, PLAIN_GAIN),
            sent + len(asked),
        )
        found.append(race.leader(paths).loglik)
    return found, sent


def first(found: list[float], target: float) -> int | None:
    return next((i for i, loglik in enumerate(found, 1) if loglik >= target), None)


def solve(seed: int, p: Problem | None) -> Outcome | None:
    if p is None:
        return None
    fed, params = begin(seed, p)
    slow = plain_em(fed, params, p.shape)
    target = slow[-1] - NEAR
    rounds = first(slow, target) or len(slow)
    if rounds <= HARD:
        return None
    fast, sent = accelerated(fed, params, p.shape, len(slow))
    return Outcome(p, rounds, first(fast, target), max(0.0, slow[-1] - fast[-1]), len(fast), sent)


def easy(seed: int, count: int = 10) -> list[tuple[int, int]]:
    """(plain, accelerated) rounds at tol = 1e-3 on well separated mixtures."""
    import unpooled as up

    made = [
        synthetic.mixture(10_000, 4, 5, separation=6, clients=5, random_state=[seed, i]).clients for i in range(count)
    ]
    fits = [[up.GaussianMixture(4, random_state=0, accelerate=a).fit(x).n_iter_ for a in (False, True)] for x in made]
    return [(plain, fast) for plain, fast in fits]


def name(p: Problem) -> str:
    return f"n={p.n:<7}d={p.d:<3}K={p.k:<3}{p.shape:<5}"


def main(args: argparse.Namespace) -> None:
    hard: list[Outcome] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        number = 0
        while len(hard) < args.problems:
            batch = [draw(args.seed, number + i, args.scarce) for i in range(2 * args.jobs)]
            number += len(batch)
            for found in pool.map(solve, [args.seed] * len(batch), batch):
                if found is not None:
                    hard.append(found)
                    p, rounds = found.problem, found.fast
                    told = f"{found.plain / rounds:6.1f} times fewer" if rounds else "   not reached"
                    told += f"; {found.total} in all, {found.sent} sent"
                    print(
                        f"{name(p)} plain {found.plain:>5} rounds, accelerated {rounds or '-':>5}: {told}", flush=True
                    )
    saved = [o.plain / o.fast if o.fast else 0.0 for o in hard]
    print(f"{len(hard)} of {number} problems need more than {HARD} rounds; seed {args.seed}")
    spread = f"median {statistics.median(saved):.1f} times, least {min(saved):.1f}, most {max(saved):.1f}"
    print(f"rounds saved: {spread}; {sum(s < 3 for s in saved)} under 3 (0: that likelihood was not reached)")
    print(f"accelerated ends below the plain one by at most {max(o.worse for o in hard):.1e} a row")
    print(
        f"plain rounds over all rounds until it stops: median {statistics.median(o.plain / o.total for o in hard):.1f} times"
    )
    print(f"plain rounds over mixtures sent: median {statistics.median(o.plain / o.sent for o in hard):.1f} times")
    fits = easy(args.seed)
    print(f"easy fits, rounds lost: {[fast - plain for plain, fast in fits]} of {[plain for plain, _ in fits]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=2029)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--scarce", action="store_true", help="5 to 30 rows a parameter")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    main(parser.parse_args())
