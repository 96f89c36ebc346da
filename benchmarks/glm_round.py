"""One Newton round of a logistic GLM over many clients, against one pooled iteration of statsmodels and of scikit-learn.

300 clients of 3,000 rows, 32 columns, float64. All run by turns in one process; the peers have one BLAS thread and two, and the better
one counts. Ours is the whole round: the question at every client, the sum, and the server's step. Of scikit-learn it is the gradient, the
Hessian and the solution alone, without the checks of a fit; of statsmodels a fit of one iteration.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable

import numpy as np
import statsmodels.api as sm
from _alternate import alternate, compare, faster
from scipy.linalg import solve
from sklearn._loss import HalfBinomialLoss
from sklearn.linear_model._linear_loss import LinearModelLoss
from threadpoolctl import threadpool_limits

from unpooled.client import Client
from unpooled.local import Local
from unpooled.models.glm import GLM


def problem(clients: int, rows: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (clients, rows, d) and outcomes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients, rows, d))
    eta = x @ (rng.normal(size=d) / np.sqrt(d)) - 0.5
    return x, (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(np.float64)


def our_round(x: np.ndarray, y: np.ndarray, threads: int) -> Callable[[], None]:
    """One step of GLM after the start."""
    fed = Local([Client(str(i), *rows) for i, rows in enumerate(zip(x, y))], threads=threads)
    model = GLM("binomial")
    state = model.init(fed, np.random.default_rng(0))
    state, _ = model.step(fed, state)
    return lambda: model.step(fed, state)


def statsmodels_iteration(x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    model = sm.GLM(y, sm.add_constant(x), family=sm.families.Binomial())
    return lambda: model.fit(maxiter=1, tol=0.0)


def scikit_learn_iteration(x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """What its newton-cholesky solver does in an iteration whose first step is taken."""
    loss = LinearModelLoss(HalfBinomialLoss(), fit_intercept=True)
    coef = np.zeros(x.shape[1] + 1)

    def iteration() -> None:
        gradient, hessian, _ = loss.gradient_hessian(coef, x, y)
        new = coef - solve(hessian, gradient, assume_a="sym")
        loss.loss(new, x, y)

    return iteration


def with_threads(n: int, work: Callable) -> Callable[[], None]:
    def limited() -> None:
        with threadpool_limits(n, user_api="blas"), warnings.catch_warnings():
            warnings.simplefilter("ignore", sm.tools.sm_exceptions.ConvergenceWarning)
            work()

    return limited


def main(args: argparse.Namespace) -> None:
    x, y = problem(args.clients, args.rows, args.d)
    pooled, outcome = x.reshape(-1, args.d), y.ravel()
    peers = {
        "statsmodels": statsmodels_iteration(pooled, outcome),
        "scikit-learn": scikit_learn_iteration(pooled, outcome),
    }
    work = {"ours": our_round(x, y, args.threads)}
    for name, run in peers.items():
        work |= {f"{name}, {n} threads": with_threads(n, run) for n in args.peer_threads}
    seconds = alternate(work, args.turns)
    print(f"{args.clients} clients x {args.rows} rows x {args.d} columns, {args.threads} threads, {args.turns} turns")
    for name in work:
        print(f"  {name:26s} {np.median(seconds[name].cpu):7.2f} s CPU, {np.median(seconds[name].wall):7.2f} s wall")
    for peer in peers:
        for clock in ("cpu", "wall"):
            best = faster(seconds, [n for n in work if n.startswith(peer)], clock)
            print(f"  by {clock:4s}: ours is {compare(seconds, best, 'ours')[clock]} times faster than {best}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--d", type=int, default=32)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--peer-threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=5)
    main(parser.parse_args())
