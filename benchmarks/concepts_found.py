"""How often FedConceptEM finds the number of concepts and every client's, by default parameters, over seeds.

    python benchmarks/concepts_found.py [--cases grid|harder] [--seeds 20] [--first 0] [--workers 1] [--out FILE]

Gaussian classes whose labels are mapped by a few concepts. "grid": 1, 2, 3 and 5 concepts, equal or skewed label shares (Dirichlet with
--alpha), one step of SGD a round or six. "harder": fewer or more clients, rows, classes and columns, concepts that agree on most labels,
clients of very unequal size, and every client with a concept of its own. A line per case: in how many seeds the number is right, in how
many all clients are, and in how many all clients are whose rows tell their concept to an oracle that knows the classes and the concepts.
Where every client has its own, it is in how many seeds the mean log-loss of new rows is below that of each client alone, and in how many
that of most clients is.
With --out every fit is a line of JSON as well.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import unpooled as up
from unpooled import baselines
from unpooled.datasets import shift

OWN = 0  # concepts: every client has its own
ODDS = 20.0  # from which on rows tell a client's concept
APART = 3.0  # of the means of the classes, in standard deviations


class Case(NamedTuple):
    """A federation to draw."""

    name: str
    concepts: int = 3
    alpha: float = np.inf  # of the Dirichlet distribution of label shares
    steps: int = 6  # of SGD a round
    clients: int = 30
    rows: int = 80
    smallest: int | None = None  # rows of the smallest client, drawn between this and `rows` on a logarithmic scale
    classes: int = 6
    columns: int = 8
    part: float = 1.0  # of the classes that concepts disagree on

    @property
    def labels(self) -> str:
        return "equal" if np.isinf(self.alpha) else "skewed"


def grid(alpha: float, numbers: list[int], clients: int, rows: int) -> list[Case]:
    """The cases of the issue."""
    return [Case("grid", k, a, steps, clients, rows) for k, a, steps in product(numbers, (np.inf, alpha), (1, 6))]


def harder(alpha: float) -> list[Case]:
    """What else a user may have."""
    changes = [
        {"name": "12 clients", "clients": 12},
        {"name": "200 rows", "rows": 200},
        {"name": "3 classes", "classes": 3},
        {"name": "10 classes", "classes": 10, "columns": 12},
        {"name": "40 columns", "columns": 40},
        {"name": "a third of the labels", "part": 1 / 3},
        {"name": "20 to 400 rows", "rows": 400, "smallest": 20},
        {"name": "50 clients, each its own", "clients": 50, "rows": 160, "concepts": OWN},
        {"name": "50 clients, one concept", "clients": 50, "concepts": 1},
        {"name": "one concept, 20 to 400 rows", "rows": 400, "smallest": 20, "concepts": 1},
    ]
    return [Case(**change, alpha=a) for change in changes for a in (np.inf, alpha)]


# ---- federations ----


class Drawn(NamedTuple):
    """A federation, with the truth."""

    train: dict[str, tuple[np.ndarray, np.ndarray]]
    test: dict[str, tuple[np.ndarray, np.ndarray]]
    concepts: dict[str, int]
    maps: np.ndarray  # (concepts, classes) class to label


def drawn(case: Case, seed: int) -> Drawn:
    """The federation of a case and a seed."""
    rng = np.random.default_rng(5000 + seed)
    y = rng.integers(case.classes, size=2 * case.clients * case.rows)
    x = APART * np.eye(case.classes, case.columns)[y] + rng.normal(size=(len(y), case.columns))
    plain = case.concepts != OWN and case.part == 1
    made = shift.build(
        x, y, case.clients, rows=case.rows, alpha=case.alpha, concepts=case.concepts if plain else 1, corrupted=0.0, random_state=seed,
        test_share=0.5 if case.concepts == OWN else 0.1,
    )  # fmt: skip
    train, test, concepts, maps = made.train, made.test, made.concepts, made.maps
    if not plain:
        maps = own_maps(case, rng) if case.concepts == OWN else swaps(case)
        place = rng.permutation(np.arange(case.clients) % len(maps))
        concepts = dict(zip(train, place.tolist()))
        train, test = ({name: (x, maps[concepts[name]][y]) for name, (x, y) in part.items()} for part in (train, test))
    if case.smallest:
        sizes = np.exp(rng.uniform(np.log(case.smallest), np.log(case.rows), size=case.clients)).astype(int)
        train = {name: (x[:n], y[:n]) for (name, (x, y)), n in zip(train.items(), sizes)}
    return Drawn(train, test, concepts, maps)


def own_maps(case: Case, rng: np.random.Generator) -> np.ndarray:
    """A random permutation of the labels for each client."""
    return np.array([rng.permutation(case.classes) for _ in range(case.clients)])


def swaps(case: Case) -> np.ndarray:
    """Concepts that exchange neighbours among the first labels, another pair each: as it is, (1, 0, 2, ...), (0, 1, 3, 2, ...)."""
    pair = round(case.part * case.classes)
    maps = np.tile(np.arange(case.classes), (case.concepts, 1))
    for k in range(1, case.concepts):
        first = (k - 1) * pair % case.classes
        maps[k, first : first + pair] = np.roll(maps[k, first : first + pair], 1)
    return maps


def told(case: Case, made: Drawn) -> list[str]:
    """The clients whose rows tell their concept: by odds of ODDS to 1, with classes, concepts and the client's label shares known."""
    to_class = np.argsort(made.maps, axis=1)  # label to class
    means = APART * np.eye(case.classes, case.columns)
    names = []
    for name, (x, y) in made.train.items():
        share = np.log(np.bincount(y, minlength=case.classes) + 0.5)
        density = -0.5 * ((x[:, None] - means) ** 2).sum(-1)  # (n, classes)
        joint = [density[:, order] + share for order in to_class]
        loglik = np.array([(j[np.arange(len(y)), y] - np.logaddexp.reduce(j, 1)).sum() for j in joint])
        others = np.delete(loglik, made.concepts[name])
        if loglik[made.concepts[name]] - others.max(initial=-np.inf) > np.log(ODDS):
            names.append(name)
    return names


# ---- the run ----


def right(job: tuple[Case, int]) -> dict:
    """A fit of a case: how many concepts were found, and whether that is right."""
    case, seed = job
    made = drawn(case, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = better_than_alone(made, seed) if case.concepts == OWN else concepts_right(case, made, seed)
    return {"case": case._asdict() | {"alpha": case.labels}, "seed": seed} | found


def concepts_right(case: Case, made: Drawn, seed: int) -> dict:
    """Whether the number is right, and whether every client is with those of its concept and no others."""
    each = np.median([len(y) for _, y in made.train.values()])
    batch = max(1, int(np.ceil(each / case.steps)))
    settings = {"lr": 0.1, "batch_size": batch, "max_iter": 30, "personalize": "none", "random_state": seed}
    model = up.FedConceptEM(**settings).fit(made.train)
    number = model.n_concepts_ == case.concepts
    pairs = {name: (made.concepts[name], found) for name, found in model.concepts_.items()}
    everyone = number and len(set(pairs.values())) == case.concepts
    those_told = number and len({pairs[name] for name in told(case, made)}) == case.concepts
    return {"found": model.n_concepts_, "number": number, "everyone": everyone, "told": those_told}


def better_than_alone(made: Drawn, seed: int) -> dict:
    """Where there are no concepts in common: whether the log-loss of test rows, and that of most clients, is below each client's alone."""
    model = up.FedConceptEM(random_state=seed).fit(made.train)
    alone = baselines.LocalOnly(random_state=seed).fit(made.train)
    losses = np.array([[log_loss(m, name, *rows) for m in (model, alone)] for name, rows in made.test.items()])
    most = (losses[:, 0] < losses[:, 1]).mean() > 0.5
    number, everyone = losses[:, 0].mean() < losses[:, 1].mean(), bool(most)
    return {"found": model.n_concepts_, "number": bool(number), "everyone": everyone, "told": everyone}


def log_loss(model: Any, name: str, x: np.ndarray, y: np.ndarray) -> float:
    """Mean log-loss of a client's test rows."""
    p = model.predict_proba(x, client=name)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return float(-np.log(p.clip(min=1e-12)).mean())


def report(case: Case, found: list[dict]) -> str:
    """A line of the table."""
    counts = [f"{sum(row[key] for row in found)} of {len(found)}" for key in ("number", "everyone", "told")]
    missed = [f"{row['seed']}: {row['found']}" for row in found if not row["everyone"]]
    counts[1] += f" (not in {', '.join(missed)})" if missed else ""
    return f"| {case.name} | {case.concepts or 'own'} | {case.labels} | {case.steps} | " + " | ".join(counts) + " |"


def lines(cases: list[Case], seeds: range, workers: int) -> Iterator[tuple[Case, list[dict]]]:
    """The fits of each case."""
    if workers == 1:
        yield from ((case, [right((case, seed)) for seed in seeds]) for case in cases)
        return
    with ProcessPoolExecutor(workers) as pool:
        futures = [[pool.submit(right, (case, seed)) for seed in seeds] for case in cases]
        yield from ((case, [f.result() for f in each]) for case, each in zip(cases, futures))


def main(given: argparse.Namespace) -> None:
    numbers = [int(k) for k in given.concepts.split(",")]
    make = {
        "grid": partial(grid, given.alpha, numbers, given.clients, given.rows),
        "harder": partial(harder, given.alpha),
    }
    seeds = range(given.first, given.first + given.seeds)
    cases = [case for case in make[given.cases]() if given.only in case.name]
    print(
        "| case | concepts | labels | steps a round | number right | all clients right | all whose rows tell |\n"
        + "|---" * 7
        + "|"
    )
    for case, found in lines(cases, seeds, given.workers):
        print(report(case, found), flush=True)
        if given.out:
            with given.out.open("a") as out:
                out.writelines(json.dumps(row, default=float) + "\n" for row in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", choices=("grid", "harder"), default="grid")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--rows", type=int, default=80)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--concepts", default="1,2,3,5")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    main(parser.parse_args())
