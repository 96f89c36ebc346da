"""How long the server of OpenMixture joins 1,000 clients' components, 8 each, at d = 20: the time must stay under ten seconds.

    python benchmarks/open_mixture_server.py [--clients 1000] [--turns 3]

Beside it: the all-pairs table of gains that greedy joining would begin with, timed on a part and scaled up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score

from unpooled.models.open_mixture import directions, merging, topics
from unpooled.models.open_mixture.constants import N_RESAMPLES
from unpooled.models.open_mixture.merging import Components


def components(clients: int, held: int, k: int, d: int, seed: int) -> tuple[Components, np.ndarray]:
    """Summaries of 60 rows each, drawn directly: Wishart scatters, means with their standard errors."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(k, d)) * 8 / np.sqrt(d)
    truth = np.concatenate([rng.choice(k, held, replace=False) for _ in range(clients)])
    n = np.full(len(truth), 60.0)
    mean = centres[truth] + rng.normal(size=(len(truth), d)) / np.sqrt(60)
    noise = rng.normal(size=(len(truth), 59, d))
    owner = np.repeat(np.arange(clients), held)
    return Components(n, mean, noise.transpose(0, 2, 1) @ noise, csr_array((n, (np.arange(len(n)), owner)))), truth


def counts(clients: int, atoms: int, k: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    group = np.eye(k)[np.arange(atoms) % k].T * rng.dirichlet(np.ones(atoms))
    shares = rng.dirichlet(np.full(k, 0.2), clients)
    return np.stack([rng.multinomial(500, p) for p in shares @ (group / group.sum(1, keepdims=True))]).astype(float)


def seconds(work: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    start = time.process_time()
    result = work(*args)
    return time.process_time() - start, result


def group(table: np.ndarray) -> int:
    """All that the server does with counts: how many topics, which, how sure, and whether the same clients hold them."""
    sums = directions.sums_of(table)
    within = directions.within_covariance(sums, np.diag(table.sum(0)))  # a row is at one atom here
    size = directions.count_directions(sums, within) + 1
    topics.fit(table, topics.initial_topics(table, topics.agglomerate(sums).labels(size)))
    directions.resampled_sizes(table, within, N_RESAMPLES, np.random.default_rng(0))
    directions.components_share_holders(table, within, np.diag(table.sum(0)), np.random.default_rng(0))
    return size


def all_pairs(parts: Components, sample: int = 20_000) -> float:
    """CPU seconds that the gains of all pairs would take."""
    p = merging.prior(parts, "full")
    alone, m = merging.evidence(parts, p), len(parts.n)
    i, j = np.random.default_rng(0).integers(m, size=(2, sample))
    return seconds(merging.gains, parts, p, alone, i, j)[0] * m * (m - 1) / 2 / sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for turn in range(args.turns):
        parts, truth = components(args.clients, 8, 30, 20, turn)
        for shape in ("full", "diag", "spherical"):
            spent, (_, where, merges) = seconds(merging.merge, parts, shape)
            ari = adjusted_rand_score(truth, merges.labels(merges.best())[where])
            rows.append({"work": f"join, {shape}", "turn": turn, "cpu_seconds": spent, "k": merges.best(), "ari": ari})
        spent, size = seconds(group, counts(args.clients, 80, 30, turn))
        rows.append({"work": "group 80 atoms of 30 topics", "turn": turn, "cpu_seconds": spent, "k": size})
        rows.append({"work": "all pairs once, full (scaled up)", "turn": turn, "cpu_seconds": all_pairs(parts)})
    for row in rows:
        print(json.dumps(row))
    whole = [
        sum(r["cpu_seconds"] for r in rows if r["turn"] == t and "all pairs" not in r["work"])
        for t in range(args.turns)
    ]
    print(
        json.dumps(
            {
                "work": "all of the server's joining and grouping",
                "median_cpu_seconds": float(np.median(whole)),
                "worst": max(whole),
            }
        )
    )


if __name__ == "__main__":
    main()
