"""One full-covariance EM round over many clients, against scikit-learn's pooled iteration and this machine's dgemm rate.

300 clients of 3000 rows, d = 32, K = 3 and 10, float64, two threads. Peer and ours run by turns in one process; scikit-learn
runs with one BLAS thread and with two, and the better one counts.
"""

from __future__ import annotations

import argparse
import os
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from _alternate import alternate, compare, faster, ratio
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from unpooled.client import Client
from unpooled.local import Local
from unpooled.maths import gaussian, mixture
from unpooled.maths.mixture import Params
from unpooled.models.mixture.em import e_step


def problem(rng: np.random.Generator, clients: int, rows: int, d: int, k: int) -> tuple[np.ndarray, Params]:
    """Rows (clients, rows, d) of a mixture, and a mixture near it."""
    factors = np.eye(d) + 0.3 * rng.normal(size=(k, d, d)) / np.sqrt(d)
    means = rng.normal(size=(k, d))
    kinds = rng.integers(0, k, (clients, rows))
    x = rng.normal(size=(clients, rows, d))
    for j in range(k):
        mine = kinds == j
        x[mine] = x[mine] @ factors[j].T + means[j]
    covs = np.tile(1.5 * np.eye(d), (k, 1, 1))
    return x, Params(np.full(k, 1 / k), means + 0.1 * rng.normal(size=(k, d)), gaussian.pack_triangle(covs))


def scikit_learn(params: Params, x: np.ndarray) -> tuple[GaussianMixture, Callable[[], None]]:
    """The pooled model at these parameters, and one iteration of it."""
    covs = gaussian.full_covs(params, "full")
    model = GaussianMixture(len(params.weights))

    def iteration() -> None:
        model.weights_, model.means_, model.covariances_ = params.weights, params.means, covs
        model.precisions_cholesky_ = gaussian.precisions_cholesky(covs, "full")
        _, log_resp = model._e_step(x)
        model._m_step(x, log_resp)

    return model, iteration


def with_threads(n: int, work: Callable) -> Callable:
    def limited() -> None:
        with threadpool_limits(n, user_api="blas"):
            work()

    return limited


def dgemm(threads: int, n: int = 2000) -> tuple[Callable[[], None], float]:
    """Products of n x n matrices, one on each thread as our rounds run, and their flops together."""
    a, b = (np.random.default_rng(i).normal(size=(n, n)) for i in range(2))
    outs = [np.empty((n, n)) for _ in range(threads)]

    def products() -> None:
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda out: np.matmul(a, b, out=out), outs))

    return products, threads * 2.0 * n**3


def round_against_pooled(args: argparse.Namespace, k: int) -> None:
    x, params = problem(np.random.default_rng(k), args.clients, args.rows, args.d, k)
    pooled = x.reshape(-1, args.d)
    model, iteration = scikit_learn(params, pooled)
    fed = Local([Client(str(i), rows) for i, rows in enumerate(x)], threads=args.threads)
    ask, new = e_step.using(shape="full"), [params]

    def ours() -> None:
        new[0] = mixture.m_step(params, fed.sum(ask, (params,))[0], "full", 1e-6)

    products, flops = dgemm(args.threads)
    peers = {f"scikit-learn, {n} threads": with_threads(n, iteration) for n in args.peer_threads}
    seconds = alternate({**peers, "ours": ours, "dgemm": products}, args.turns)
    print(f"\nK = {k}: {args.clients} clients x {args.rows} rows, d = {args.d}, {args.threads} threads, float64")
    for name, spent in seconds.items():
        print(f"  {name:24s} {np.median(spent.cpu):7.3f} s CPU {np.median(spent.wall):7.3f} s wall (medians)")
    done = 4.0 * len(pooled) * k * args.d**2
    for clock in ("cpu", "wall"):
        peer = faster(seconds, list(peers), clock)
        share = ratio(getattr(seconds["dgemm"], clock) / flops * done, getattr(seconds["ours"], clock))
        times = compare(seconds, peer, "ours")[clock]
        print(f"  by {clock:4s}: {times} times faster than {peer}; {share} of dgemm on 4NKd^2")
    away = max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(new[0], _packed(model)))
    print(f"  largest relative difference from scikit-learn after the iteration: {away:.1e}")


def _packed(model: GaussianMixture) -> Params:
    return Params(model.weights_, model.means_, gaussian.pack_triangle(model.covariances_))


def stacked_against_pooled(turns: int) -> None:
    """Statistics kept apart for each of many small clients, as private weights need them."""
    x, params = problem(np.random.default_rng(0), 10_000, 100, 16, 5)
    w = np.ones(x.shape[:2])
    work = {
        "stacked": lambda: mixture.e_step(params, x, w, "full"),
        "pooled": lambda: mixture.e_step(params, x.reshape(-1, 16), w.reshape(-1), "full"),
    }
    with threadpool_limits(1, user_api="blas"):
        seconds = alternate(work, turns)
        tracemalloc.start()
        work["stacked"]()
        peak = tracemalloc.get_traced_memory()[1]
    print("\n10,000 clients x 100 rows on a leading axis, d = 16, K = 5, one thread")
    print(f"  {compare(seconds, 'stacked', 'pooled')['cpu']} times the CPU seconds of the same rows pooled")
    print(f"  peak memory {peak / 2**20:.0f} MiB above {x.nbytes / 2**20:.0f} MiB of data, the answer included")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--d", type=int, default=32)
    parser.add_argument("--k", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--peer-threads", type=int, nargs="+", default=[1, 2], help="BLAS threads of scikit-learn")
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    for components in given.k:
        round_against_pooled(given, components)
    stacked_against_pooled(given.turns)
