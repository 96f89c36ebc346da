"""Do `MixedMixture("auto")` and `OpenMixture` find groups among categories and mixed columns, and how many? K unknown, five clients.

    python benchmarks/mixed_clustering.py [--seeds 3] [--first 130] [--models mixed open] [--jobs 1]

Binary and categorical tables are drawn in the manner of FedMerDel's simulations (ML4H 2025): 1,000 rows, independent columns in every
cluster, probabilities uniform on the simplex, 50 binary or 20 categorical columns of four levels. Mixed tables have 1,500 rows: three
correlated numbers, three categories, two overdispersed counts and two binary columns. Beside the number of components found: the
adjusted Rand index of the pooled rows, and that of `MixedMixture` told K and fitted to pooled rows from five starts. `OpenMixture` is
fitted twice, to clients that hold different clusters and to identical ones. Every fit is one line of the file `--out`, and none is made
twice; `--jobs` of them run side by side.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import unpooled as up

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "fedem"))
from _kept import kept

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


def table(kind: str, k: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[str], dict[str, np.ndarray]]:
    """(rows, clusters, kinds, the client of each row: clients that hold different clusters, and identical ones)."""
    rng = np.random.default_rng(seed)
    x, z, kinds = MAKERS[kind](k, rng)
    skewed = (z + rng.integers(0, 3, len(z))) % 5
    return x, z, kinds, {"skewed": skewed, "identical": rng.integers(5, size=len(z))}


def told(kind: str, k: int, seed: int) -> dict[str, float]:
    x, z, kinds, _ = table(kind, k, seed)
    model = up.MixedMixture(k, kinds=kinds, n_init=5, random_state=1).fit(x)
    return {"found": float(k), "ari": float(adjusted_rand_score(z, model.predict(x)))}


def mixed_auto(kind: str, k: int, seed: int) -> dict[str, float]:
    x, z, kinds, by = table(kind, k, seed)
    model = up.MixedMixture("auto", kinds=kinds, random_state=0).fit(x, by=by["skewed"])
    return {"found": float(model.n_components_), "ari": float(adjusted_rand_score(z, model.predict(x)))}


def opened(kind: str, k: int, seed: int, split: str) -> dict[str, float]:
    x, z, kinds, by = table(kind, k, seed)
    model = up.OpenMixture(kinds=kinds, random_state=0).fit(x, by=by[split])
    labels = np.empty(len(z), dtype=int)
    for name, mine in model.labels_.items():
        labels[by[split] == int(name)] = mine
    certain = model.certainty_.get(str(k), 0.0)
    return {
        "found": float(model.n_components_),
        "ari": float(adjusted_rand_score(z, labels)),
        "certain": certain,
    }


FITS = {
    "told K": (told, ()),
    "MixedMixture": (mixed_auto, ()),
    "OpenMixture skewed": (opened, ("skewed",)),
    "OpenMixture identical": (opened, ("identical",)),
}
MODELS = {"mixed": ["MixedMixture"], "open": ["OpenMixture skewed", "OpenMixture identical"]}


def measured(out: Path, name: str, kind: str, k: int, seed: int) -> dict:
    """One fit of one table, kept in a file."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    fit, more = FITS[name]
    return kept(out, {"fit": name, "kind": kind, "k": k, "seed": seed}, fit, kind, k, seed, *more)


def all_measured(out: Path, jobs: list[tuple[str, str, int, int]], side_by_side: int) -> list[dict]:
    """The line of each (fit, kind, k, seed), in their order."""
    if side_by_side == 1:
        return [measured(out, *job) for job in jobs]
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes to come
    with ProcessPoolExecutor(side_by_side) as pool:
        return list(pool.map(measured, [out] * len(jobs), *zip(*jobs)))


def shown_tables(rows: list[dict], names: list[str]) -> None:
    """A line for each kind of table: the numbers of components found, and the mean agreement."""
    for kind, k in CASES:
        said = f"{kind:12} {k:2d}"
        for name in names:
            found = [row for row in rows if (row["fit"], row["kind"], row["k"]) == (name, kind, k)]
            sizes = " ".join(f"{row['found']:.0f}" for row in found)
            said += f" | {name}: {sizes} ARI {np.mean([row['ari'] for row in found]):.3f}"
        print(said)


def shown_totals(rows: list[dict], name: str) -> None:
    """A line for one model over all tables, beside the fit that is told K."""
    mine, told_k = ([row for row in rows if row["fit"] == fit] for fit in (name, "told K"))
    near = np.mean([abs(row["found"] - row["k"]) <= 1 for row in mine])
    right = np.mean([row["found"] == row["k"] for row in mine])
    above = np.mean([a["ari"] >= b["ari"] - 1e-9 for a, b in zip(mine, told_k)])
    ari, best = (np.mean([row["ari"] for row in some]) for some in (mine, told_k))
    print(
        f"{name}: K right in {right:.0%}, within 1 in {near:.0%} of {len(mine)}; "
        f"mean ARI {ari:.3f}, told K {best:.3f}, at or above {above:.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=130)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/mixed_clustering.jsonl"))
    given = parser.parse_args()
    names = ["told K", *(name for model in given.models for name in MODELS[model])]
    seeds = range(given.first, given.first + given.seeds)
    jobs = [(name, kind, k, seed) for name in names for seed in seeds for kind, k in CASES]
    rows = all_measured(given.out, jobs, given.jobs)
    shown_tables(rows, names)
    for name in names[1:]:
        shown_totals(rows, name)


if __name__ == "__main__":
    main()
