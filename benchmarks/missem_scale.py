"""Does FedMissEM complete a 10,000 x 500 table of which 0.5 % was seen, over 10 clients, in under 2 GB and ten minutes?"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import unpooled as up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--dates", type=int, default=500)
    parser.add_argument("--share", type=float, default=0.005)
    parser.add_argument("--rank", type=int, default=2)
    parser.add_argument("--max-iter", type=int, default=200)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    site_effect, date_effect = rng.normal(scale=0.7, size=given.sites), 0.5 * np.sin(np.arange(given.dates) / 40)
    u, v = rng.normal(scale=0.6, size=(given.sites, 2)), rng.normal(scale=0.6, size=(given.dates, 2))
    n = round(given.share * given.sites * given.dates)
    cell = rng.choice(given.sites * given.dates, size=n, replace=False)
    site, date = np.divmod(cell, given.dates)
    theta = 1.0 + site_effect[site] + date_effect[date] + (u[site] * v[date]).sum(axis=1)
    visits = np.column_stack([site, date, rng.poisson(np.exp(theta))]).astype(float)
    wall, cpu = time.perf_counter(), time.process_time()
    model = up.FedMissEM(given.rank, "poisson", n_sites=given.sites, n_dates=given.dates, max_iter=given.max_iter)
    model.fit(visits, by=rng.integers(10, size=n))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    truth = 1.0 + site_effect[:, None] + date_effect + u @ v.T
    totals = np.exp(truth).sum(axis=0)
    error = float(np.median(np.abs(model.totals_ / totals - 1)))
    sent = sum(row["bytes_up"] for row in model.history_) / 2**20
    print(f"{given.sites} x {given.dates}, {n} visits, 10 clients, rank {given.rank}: {model.n_iter_} rounds")
    print(
        f"  {wall:.1f} s wall, {cpu:.1f} s CPU, peak memory {peak:.2f} GB of the whole process, {sent:.0f} MB sent up"
    )
    print(
        f"  deviance a visit {model.history_[-1]['deviance']:.3f}; totals by date off by {100 * error:.1f} % at the median"
    )
    print(f"  under 2 GB and ten minutes: {bool(peak < 2 and wall < 600)}")


if __name__ == "__main__":
    main()
