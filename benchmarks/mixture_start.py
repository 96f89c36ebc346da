"""Final log-likelihood of Gaussian mixtures from two starts, sums over cells and gathered local centres, on 40 problems.

Twenty published tables (through UNPOOLED_DATA; left out where it is not there) and twenty drawn mixtures; 2 to 30 columns, 2 to 20
components, values missing in some. Rows are split into clients by class, by Dirichlet(0.3) over eight clients, or by Dirichlet(1)
over ten, in turn. Columns with fewer than 30 distinct values, or
with one value in more than a tenth of the rows, are left out or replaced by principal axes: any mixture collapses on them. Both
starts have the same n_init and seed and are followed by the same EM; they alternate in order. "Level" is within 1e-3 nats per row.
A fit with a collapsed component counts as lost. The start's constants were chosen on other problems.
`--keep FILE` writes each result to a file and leaves out what is there already.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA

import unpooled as up
from unpooled.data import partition, synthetic
from unpooled.datasets import shared
from unpooled.models.mixture.em import collapsed

LEVEL, N_INIT, SEEDS, REG = 1e-3, 3, (0, 1), 1e-6
HOWS = ("cells", "gather")
SPLITS = ("by class", "eight", "ten")


class Problem(NamedTuple):
    name: str
    x: np.ndarray  # (n, d), NaN is missing
    y: np.ndarray  # (n,) what rows are split by
    k: int


# ---- problems ----


def tables() -> Iterator[Problem]:
    for name, k, axes in (
        ("wine", 3, None),
        ("s1", 15, None),
        ("s2", 15, None),
        ("d31", 20, None),
        ("r15", 15, None),
        ("hepta", 7, None),
        ("lsun", 3, None),
        ("ecoli", 4, None),
        ("segment", 7, 8),
        ("satimage", 6, 12),
        ("optdigits", 10, 15),
        ("anuran_species", 10, None),
        ("letter", 20, 10),
    ):
        found = shared.clustering(name)
        yield prepared(name, found.x, found.y, k, axes)
    for name, read, k, axes in (
        ("skillcraft", shared.skillcraft, 3, None),
        ("parkinsons", shared.parkinsons, 5, 8),
        ("seoul_bike", shared.seoul_bike, 4, None),
        ("ccpp", shared.ccpp, 4, None),
        ("heart_disease", shared.heart_disease, 3, None),
        ("beijing", shared.beijing, 4, None),
    ):
        found = read()
        yield prepared(name, found.x, _bins(found.x[:, 0], k), k, axes)
    found = load_diabetes(scaled=False)
    yield prepared("diabetes", found.data, _bins(found.target, 3), 3, None)


def prepared(name: str, x: np.ndarray, y: np.ndarray, k: int, axes: int | None, most: int = 4000) -> Problem:
    """At most so many rows, columns of enough distinct values, principal axes where asked for, some rows left."""
    rows = np.sort(np.random.default_rng(0).permutation(len(x))[:most])
    x, y = np.asarray(x, dtype=float)[rows], np.unique(np.asarray(y)[rows], return_inverse=True)[1]
    x = x[:, [_smooth(column) if axes is None else len(np.unique(column)) > 1 for column in x.T]]
    there = ~np.isnan(x).all(1)
    x, y = x[there], y[there]
    if axes is not None:
        x = PCA(axes, svd_solver="full").fit_transform((x - x.mean(0)) / x.std(0))
    return Problem(name, x, y, k)


def _smooth(column: np.ndarray) -> bool:
    """Whether a column has many values, none of them in more than a tenth of the rows."""
    there = column[~np.isnan(column)]
    _, counts = np.unique(there, return_counts=True)
    return len(counts) >= 30 and counts.max() <= len(there) / 10


def _bins(values: np.ndarray, k: int) -> np.ndarray:
    edges = np.nanquantile(values, np.linspace(0, 1, k + 1)[1:-1])
    return np.searchsorted(edges, np.nan_to_num(values, nan=np.nanmedian(values)))


def drawn() -> Iterator[Problem]:
    """Ten with covariances and units of all kinds, ten whose nearest components are a given distance apart; a fifth has gaps."""
    for number in range(20):
        rng = np.random.default_rng([16, number])
        gaps = number % 5 == 4
        k, d = int(rng.integers(2, 21)), int(rng.integers(2, 9 if gaps else 31))
        n = int(rng.integers(1500, 6000))
        x, labels = _any_shape(n, k, d, rng) if number < 10 else _apart(n, k, d, rng)
        x = synthetic.missing(x, 0.15, rng=rng) if gaps else x
        yield Problem(f"drawn {number}{' with gaps' if gaps else ''}", x, labels, k)


def _any_shape(n: int, k: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    means = rng.normal(scale=rng.uniform(1, 4), size=(k, d))
    labels = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 3.0)))
    roots = 0.4 * rng.normal(size=(k, d, d)) + 0.6 * np.eye(d)
    x = means[labels] + np.einsum("nij,nj->ni", roots[labels], rng.normal(size=(n, d)))
    return x * 10.0 ** rng.uniform(-2, 2, size=d), labels


def _apart(n: int, k: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    separation = float(rng.uniform(2, 4))
    made = synthetic.mixture(n, k, d, separation=separation, random_state=int(rng.integers(2**31)))
    return next(iter(made.clients.values())), next(iter(made.labels.values()))


def split(problem: Problem, how: str) -> dict[str, np.ndarray]:
    if how == "by class":
        owner = problem.y % 10
    else:
        clients, alpha = (8, 0.3) if how == "eight" else (10, 1.0)
        owner = partition.dirichlet(problem.y, clients, alpha, random_state=0)
    return {f"client {c}": problem.x[owner == c] for c in np.unique(owner)}


# ---- fits ----


def fitted(clients: dict[str, np.ndarray], k: int, how: str, seed: int) -> dict:
    model = up.GaussianMixture(
        k, init_params=how, n_init=N_INIT, reg_covar=REG, tol=1e-5, max_iter=500, random_state=seed
    )
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(clients)
    lost = bool(collapsed(model.params(), "full", REG, model.n_rows_).any())
    seconds = time.process_time() - began
    return {"loglik": model.lower_bound_, "rounds": model.n_iter_, "collapsed": lost, "seconds": seconds}


def compare(problem: Problem, how: str, seed: int, turn: int) -> dict:
    clients = split(problem, how)
    order = HOWS if turn % 2 == 0 else HOWS[::-1]
    found = {start: fitted(clients, problem.k, start, seed) for start in order}
    return {start: found[start] for start in HOWS}


def verdict(result: dict) -> str:
    cells, gather = result["cells"], result["gather"]
    if cells["collapsed"] or gather["collapsed"]:
        return (
            "both collapsed"
            if cells["collapsed"] and gather["collapsed"]
            else ("better" if gather["collapsed"] else "worse")
        )
    gain = cells["loglik"] - gather["loglik"]
    return "better" if gain > LEVEL else "level" if gain >= -LEVEL else "worse"


def show(name: str, problem: Problem, split_by: str, seed: int, result: dict) -> None:
    cells, gather = result["cells"], result["gather"]
    print(
        f"{name:22s} {len(problem.x):5d} {problem.x.shape[1]:3d} {problem.k:3d}  {split_by:9s} {seed}"
        f"  {cells['loglik']:10.4f} {cells['rounds']:4d} {'collapsed' if cells['collapsed'] else '':9s}"
        f"  {gather['loglik']:10.4f} {gather['rounds']:4d} {'collapsed' if gather['collapsed'] else '':9s}"
        f"  {cells['loglik'] - gather['loglik']:+8.4f} {verdict(result)}",
        flush=True,
    )


def problems() -> list[Problem]:
    found: list[Problem] = []
    sources: list[Callable[[], Iterator[Problem]]] = [tables, drawn]
    if shared.folder() is None:
        print("UNPOOLED_DATA is not there: drawn mixtures only")
        sources = [drawn]
    for source in sources:
        found.extend(source())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="a file of results, added to and not repeated")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    args = parser.parse_args()
    kept = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    print(
        "problem                 rows   d   K  split     seed       cells rounds              gathered rounds             gain"
    )
    numbered = list(enumerate(problems()))
    for turn, (seed, (i, problem)) in enumerate((s, p) for s in args.seeds for p in numbered):
        split_by = SPLITS[i % 3]
        key = f"{problem.name} {seed}"
        if key not in kept:
            kept[key] = compare(problem, split_by, seed, turn)
            if args.keep:
                args.keep.write_text(json.dumps(kept))
        show(problem.name, problem, split_by, seed, kept[key])
    summary(list(kept.values()))


def summary(results: list[dict]) -> None:
    verdicts = [verdict(r) for r in results]
    counts = ", ".join(f"{v} {verdicts.count(v)}" for v in ("better", "level", "worse", "both collapsed"))
    fine = sum(v in ("better", "level") for v in verdicts)
    lost = {how: sum(r[how]["collapsed"] for r in results) for how in HOWS}
    seconds = {how: sum(r[how]["seconds"] for r in results) for how in HOWS}
    print(f"cells against gathered: {counts}; no worse on {fine} of {len(results)} ({100 * fine / len(results):.0f} %)")
    print(f"collapsed fits: cells {lost['cells']}, gathered {lost['gather']}")
    print(f"CPU seconds, start and EM: cells {seconds['cells']:.0f}, gathered {seconds['gather']:.0f}")


if __name__ == "__main__":
    main()
