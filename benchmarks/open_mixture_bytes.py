"""What OpenMixture sends for 100 clients at d = 20: rounds and bytes up per client by question, plain and compressed.

    python benchmarks/open_mixture_bytes.py [--rows 60]

Clusters are pairs of Gaussians, so that both structures have work to do.
"""

from __future__ import annotations

import argparse
import json
import warnings

import numpy as np

import unpooled as up
from unpooled.federation import Federation
from unpooled.metrics.clustering import score


def clients(rows: int, count: int = 100, d: int = 20, k: int = 6, seed: int = 0) -> tuple[dict, dict]:
    rng = np.random.default_rng(seed)
    spots = rng.normal(size=(k, 2, d)) * 2
    y = {f"c{c:03}": rng.choice(rng.choice(k, 3, replace=False), rows) for c in range(count)}
    return {n: spots[z, rng.integers(2, size=rows)] + rng.normal(size=(rows, d)) for n, z in y.items()}, y


def measure(name: str, fed: Federation, model: up.OpenMixture, truth: dict, count: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(fed)
    found = score(truth, model.labels_)
    whole = {
        "what": name,
        "exchanges": fed.journal.round,
        "bytes_up_a_client": sum(e.bytes_up for e in fed.journal.exchanges) / count,
    }
    print(json.dumps(whole | {"structure": model.structure_, "k": model.n_components_, "pooled_ari": found.pooled_ari}))
    by: dict[str, float] = {}
    for e in fed.journal.exchanges:
        by[e.question.rpartition(".")[2]] = by.get(e.question.rpartition(".")[2], 0.0) + e.bytes_up / count
    print(json.dumps({"what": f"{name}, by question", **{q: round(b) for q, b in by.items()}}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60)
    args = parser.parse_args()
    x, y = clients(args.rows)
    measure("plain", up.federate(x), up.OpenMixture(random_state=0), y, len(x))
    measure("compressed", up.Compressed(up.federate(x)), up.OpenMixture(random_state=0), y, len(x))


if __name__ == "__main__":
    main()
