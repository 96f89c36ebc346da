"""Does OpenMixture see clusters through offsets of sites?

    UNPOOLED_DATA=<folder of the data> python benchmarks/open_mixture_offsets.py --out offsets.jsonl --processes 4
    python benchmarks/open_mixture_offsets.py --out offsets.jsonl --summary

Ten tables of at most 1,200 rows are split over ten clients that are identical (rows at random) or skewed (each class over few clients,
Dirichlet 0.3). Every client's rows are moved by a random offset of 0, 0.25 or 0.5 standard deviations within classes, per column. Written,
one line per table, seed and split, are the adjusted Rand index over all rows, the number of clusters, the certainty of the true number,
for identical clients the index of a pooled mixture with K by BIC, and where offsets were found though there are none, the index of the
fit with `site_offsets=False` (where none are found it is the same fit). Lines that the file has already are not computed again.
`--few-clients` asks for 4 and for 10 clients on drawn tables without offsets instead, `--unmoved` for other tables without offsets,
`--development` for the tables of `_correlated_tables`, on which settings were chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from _correlated_tables import DEVELOPMENT
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import unpooled as up
from unpooled.datasets import shared

TABLE_SEED, FIRST_SEED, ROWS, N_CLIENTS, SKEW = 6000, 6200, 1200, 10, 0.3
OFFSETS = (0.0, 0.25, 0.5)
Table = tuple[np.ndarray, np.ndarray]


def generated(seed: int, k: int, d: int, apart: float) -> Callable[[], Table]:
    def load() -> Table:
        rng = np.random.default_rng(seed)
        means, scales = apart * rng.normal(size=(k, d)), rng.uniform(0.5, 1.5, size=(k, d))
        y = rng.integers(k, size=ROWS)
        return means[y] + scales[y] * rng.normal(size=(ROWS, d)), y

    return load


def published(name: str) -> Callable[[], Table]:
    def load() -> Table:
        data = shared.clustering(name)
        return np.asarray(data.x, float), np.asarray(data.y)

    return load


TABLES: dict[str, Callable[[], Table]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "generated 8 x 5": generated(TABLE_SEED, 8, 5, 2.0),
    "generated 12 x 8": generated(TABLE_SEED + 1, 12, 8, 1.5),
    "generated 5 x 3": generated(TABLE_SEED + 2, 5, 3, 3.0),
    **{name: published(name) for name in ("s1", "r15", "hepta", "lsun", "wdbc")},
}
UNMOVED = {name: published(name) for name in ("ecoli", "vehicle", "s2", "a1", "unbalance", "d31")}
DRAWN = {
    f"drawn {k} x {d}": generated(TABLE_SEED + 10 + k, k, d, apart)
    for k, d, apart in ((4, 2, 4.0), (6, 4, 2.0), (10, 5, 2.0), (10, 2, 6.0), (15, 8, 1.5))
}


def sample(load: Callable[[], Table], rng: np.random.Generator) -> Table:
    x, y = load()
    rows = rng.permutation(len(y))[:ROWS]
    return x[rows] / x[rows].std(0), np.unique(y[rows], return_inverse=True)[1]


def split(y: np.ndarray, skewed: bool, rng: np.random.Generator, n_clients: int = N_CLIENTS) -> np.ndarray:
    """The client of each row."""
    if not skewed:
        return rng.integers(n_clients, size=len(y))
    shares = rng.dirichlet(np.full(n_clients, SKEW), size=y.max() + 1)
    return np.array([rng.choice(n_clients, p=shares[k]) for k in y])


def within(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Standard deviation of each column within classes."""
    return np.sqrt(np.mean([x[y == k].var(0) for k in np.unique(y)], axis=0))


class Fitted(NamedTuple):
    index: float  # adjusted Rand index over all rows
    n_clusters: int
    certainty: float  # of the true number
    offsets: float  # the largest scale of the offsets that were removed
    removed: bool  # whether offsets or scales were
    seconds: float


def fit(x: np.ndarray, y: np.ndarray, by: np.ndarray, seed: int, site_offsets: bool = True) -> Fitted:
    clients = np.unique(by)
    data = {f"c{c}": x[by == c] for c in clients}
    start = perf_counter()
    model = up.OpenMixture(random_state=seed, site_offsets=site_offsets).fit(data)
    seconds = perf_counter() - start
    labels = np.concatenate([model.labels_[name] for name in data])
    truth = np.concatenate([y[by == c] for c in clients])
    certainty = model.certainty_.get(str(y.max() + 1), 0.0)
    index = adjusted_rand_score(truth, labels)
    scale, removed = float(model.site_offset_scale_.max()), bool(model.client_offsets_)
    return Fitted(index, model.n_components_, certainty, scale, removed, seconds)


def pooled(x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """The index of a mixture of the pooled rows, its size and covariance type by BIC."""
    fits = [
        GaussianMixture(k, covariance_type=shape, n_init=2, random_state=seed).fit(x)
        for k in range(1, 2 * y.max() + 4)
        for shape in ("spherical", "diag", "full")
    ]
    best = min(fits, key=lambda model: model.bic(x))
    return adjusted_rand_score(y, best.predict(x))


# ---- one line of the file ----


class Task(NamedTuple):
    table: str
    seed: int
    skewed: bool
    n_clients: int
    offsets: tuple[float, ...]


def measured(task: Task) -> dict[str, Any]:
    """The fits of one table, seed and split, with each of the offsets."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([task.seed, task.skewed])
    x, y = sample({**TABLES, **DRAWN, **UNMOVED, **DEVELOPMENT}[task.table], rng)
    by, scale = split(y, task.skewed, rng, task.n_clients), within(x, y)
    unit = rng.normal(size=(task.n_clients, x.shape[1])) * scale
    fits = {str(offset): fit(x + offset * unit[by], y, by, task.seed)._asdict() for offset in task.offsets}
    unmoved = fits["0.0"]
    without = fit(x, y, by, task.seed, site_offsets=False).index if unmoved["removed"] else unmoved["index"]
    best = {} if task.skewed else {"pooled": pooled(x, y, task.seed)}
    return {**task._asdict(), "classes": int(y.max()) + 1, "fits": fits, "without": without, **best}


def key(line: dict[str, Any]) -> tuple:
    return line["table"], line["seed"], line["skewed"], line["n_clients"]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(tasks: Iterable[Task], path: Path, processes: int) -> None:
    done = {key(line) for line in lines_of(path)}
    with ProcessPoolExecutor(processes) as pool, path.open("a") as file:
        waiting = [pool.submit(measured, task) for task in tasks if key(task._asdict()) not in done]
        for found in as_completed(waiting):
            line = found.result()
            print(said(line), flush=True)
            file.write(json.dumps(line) + "\n")
            file.flush()


# ---- what is printed ----


def said(line: dict[str, Any]) -> str:
    fits = (
        f"{offset}: {f['index']:.3f} K {f['n_clusters']} ({f['certainty']:.2f})" for offset, f in line["fits"].items()
    )
    split_name = "skewed" if line["skewed"] else "identical"
    pooled_bic = f"  pooled BIC {line['pooled']:.3f}" if "pooled" in line else ""
    head = f"{line['table']:17} {line['seed']} {line['n_clients']:2} {split_name:9} classes {line['classes']:2}  "
    return head + "  ".join(fits) + pooled_bic


def summary(lines: list[dict[str, Any]]) -> None:
    fits = [(f, line) for line in lines for f in line["fits"].values()]
    for offset, allowed in (("0.25", 0.05), ("0.5", 0.1)):
        losses = [
            line["fits"]["0.0"]["index"] - line["fits"][offset]["index"] for line in lines if offset in line["fits"]
        ]
        if losses:
            print(f"offset {offset}: {sum(loss <= allowed for loss in losses)} of {len(losses)} lose at most {allowed}")
    near = sum(abs(f["n_clusters"] - line["classes"]) <= 1 for f, line in fits)
    sure = sum(f["certainty"] >= 0.5 for f, _ in fits)
    level = [line["fits"]["0.0"]["index"] >= line["pooled"] - 0.01 for line in lines if "pooled" in line]
    print(f"K within one: {near} of {len(fits)}; the true K has half of the certainty: {sure} of {len(fits)}")
    lost = [line["without"] - line["fits"]["0.0"]["index"] for line in lines]
    found = sum(line["fits"]["0.0"]["removed"] for line in lines)
    print(
        f"without offsets: {found} of {len(lines)} remove some, {sum(loss <= 0.01 for loss in lost)} lose at most .01 by it"
    )
    print(f"identical clients at or above the pooled mixture less .01: {sum(level)} of {len(level)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--few-clients", action="store_true", help="4 and 10 clients on drawn tables, without offsets")
    parser.add_argument("--unmoved", action="store_true", help="other tables, without offsets")
    parser.add_argument("--development", action="store_true", help="tables that settings were chosen on")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("offsets.jsonl"))
    parser.add_argument("--summary", action="store_true", help="print what the file has")
    given = parser.parse_args()
    if not given.summary:
        run(list(tasks(given)), given.out, given.processes)
    lines = sorted(lines_of(given.out), key=key)
    for line in lines:
        print(said(line))
    summary(lines)


def tasks(given: argparse.Namespace) -> Iterable[Task]:
    """All lines that are wanted; tables of the data folder only where it is."""
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    if given.few_clients:
        return (Task(t, s, k, n, (0.0,)) for t in DRAWN for s in seeds for k in (False, True) for n in (4, 10))
    if given.unmoved:
        return (Task(t, s, k, N_CLIENTS, (0.0,)) for t in UNMOVED for s in seeds for k in (False, True))
    if given.development:
        return (Task(t, s, k, N_CLIENTS, OFFSETS) for t in DEVELOPMENT for s in seeds for k in (False, True))
    here = [n for n in given.tables if "UNPOOLED_DATA" in os.environ or n in ("iris", "wine") or " " in n]
    return (Task(t, s, k, N_CLIENTS, OFFSETS) for s in seeds for t in here for k in (False, True))


if __name__ == "__main__":
    main()
