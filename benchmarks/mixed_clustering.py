"""Does MixedMixture("auto") find groups among categories and mixed columns, and how many? Over five clients, K unknown.

    python benchmarks/mixed_clustering.py [--seeds 5]

Binary and categorical tables are drawn in the manner of FedMerDel's simulations (ML4H 2025): 1,000 rows, independent columns in every
cluster, probabilities uniform on the simplex, 50 binary or 20 categorical columns of four levels. Mixed tables have 1,500 rows: three
correlated numbers, three categories, two overdispersed counts and two binary columns. Beside the number of components found: the
adjusted Rand index of the pooled rows, and that of the same model told K and fitted to pooled rows from five starts.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import unpooled as up

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "fedem"))
from _kept import kept

FIRST_SEED = 30
CASES = [("binary", 4), ("binary", 8), ("categorical", 4), ("categorical", 8)] + [("mixed", k) for k in range(3, 9)]
Table = tuple[np.ndarray, np.ndarray, list[str]]  # rows, clusters, kinds


def _levels(probs: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Levels drawn from probs (k, d, levels) by cluster."""
    ends = probs.cumsum(-1)[z]
    return (rng.random(ends.shape[:2])[:, :, None] > ends[:, :, :-1]).sum(-1).astype(np.float64)


def binary(k: int, rng: np.random.Generator) -> Table:
    z = rng.choice(k, 1000, p=rng.dirichlet(np.full(k, 5.0)))
    return _levels(rng.dirichlet(np.ones(2), size=(k, 50)), z, rng), z, ["binary"] * 50


def categorical(k: int, rng: np.random.Generator) -> Table:
    z = rng.choice(k, 1000, p=rng.dirichlet(np.full(k, 5.0)))
    return _levels(rng.dirichlet(np.ones(4), size=(k, 20)), z, rng), z, ["category"] * 20


def mixed(k: int, rng: np.random.Generator) -> Table:
    z = rng.choice(k, 1500, p=rng.dirichlet(np.full(k, 8.0)))
    correlated = rng.normal(size=(1500, 3)) @ np.linalg.cholesky(np.full((3, 3), 0.4) + 0.6 * np.eye(3)).T
    numbers = 2 * rng.normal(size=(k, 3))[z] + correlated
    categories = _levels(rng.dirichlet(np.full(4, 0.7), size=(k, 3)), z, rng)
    rates = np.exp(rng.normal(1, 0.8, size=(k, 2)))[z] * rng.gamma(4, 0.25, size=(1500, 2))
    flags = rng.random((1500, 2)) < rng.random((k, 2))[z]
    table = np.column_stack([numbers, categories, rng.poisson(rates), flags]).astype(np.float64)
    return table, z, ["real"] * 3 + ["category"] * 3 + ["count"] * 2 + ["binary"] * 2


MAKERS = {"binary": binary, "categorical": categorical, "mixed": mixed}


def trial(kind: str, k: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    x, z, kinds = MAKERS[kind](k, rng)
    site = (z + rng.integers(0, 3, len(z))) % 5  # clients hold different clusters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = up.MixedMixture("auto", kinds=kinds, random_state=0).fit(x, by=site)
        told = up.MixedMixture(k, kinds=kinds, n_init=5, random_state=1).fit(x)
    return {
        "found": float(found.n_components_),
        "ari": float(adjusted_rand_score(z, found.predict(x))),
        "told ari": float(adjusted_rand_score(z, told.predict(x))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/mixed_clustering.jsonl"))
    given = parser.parse_args()
    rows = []
    print(f"{'table':12} {'K':>2} {'found':>20} {'ARI':>6} {'told K':>7}")
    for kind, k in CASES:
        keys = [(kind, k, seed) for seed in range(FIRST_SEED, FIRST_SEED + given.seeds)]
        found = [kept(given.out, dict(zip(("kind", "k", "seed"), key)), trial, *key) for key in keys]
        rows += found
        sizes = " ".join(f"{row['found']:.0f}" for row in found)
        ari, told = (np.mean([row[name] for row in found]) for name in ("ari", "told ari"))
        print(f"{kind:12} {k:2d} {sizes:>20} {ari:6.3f} {told:7.3f}", flush=True)
    near = np.mean([abs(row["found"] - row["k"]) <= 1 for row in rows])
    above = np.mean([row["ari"] >= row["told ari"] - 1e-9 for row in rows])
    ari, told = (np.mean([row[name] for row in rows]) for name in ("ari", "told ari"))
    print(f"K within 1 in {near:.0%} of fits; mean ARI {ari:.3f}, told K {told:.3f}; at or above in {above:.0%}")


if __name__ == "__main__":
    main()
