"""Half of the clients absent in every round: do FedEM and VR-FedEM end where exact EM does, and do they say so if they do not?

    python benchmarks/fedem_convergence.py             # five tables, four splits and seeds each

Five tables of scikit-learn (iris, wine, breast cancer, diabetes, digits by ten principal components), K = 3, eight clients at random,
`fraction=0.5`, default parameters but `max_iter=300`. Exact EM starts from the same start and stops by the same tol. A run is good if it is
at most 0.01 per row below exact EM. A run that is not must have `converged_ = False`, unless it is at another local optimum: EM
of the same family over all clients, continued from where it ended, gains at most 0.01 per row. The last lines try the levels 1 to 7 with
all clients present on the two tables whose columns nearly depend on each other: none may crash.
"""

from __future__ import annotations

import argparse
import warnings
from typing import NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.decomposition import PCA

import unpooled as up

NEAR = 0.01  # log-likelihood per row
SOLVERS = ("fedem", "vr-fedem")


def tables() -> dict[str, np.ndarray]:
    digits = PCA(10, random_state=0).fit_transform(datasets.load_digits().data)
    return {
        "iris": datasets.load_iris().data,
        "wine": datasets.load_wine().data,
        "breast cancer": datasets.load_breast_cancer().data,
        "diabetes": datasets.load_diabetes().data,
        "digits": digits,
    }


class Trial(NamedTuple):
    gap: float  # log-likelihood per row against exact EM from the same start
    continued: float  # what exact EM gains per row if it goes on from the result
    converged: bool
    rounds: int
    exact_rounds: int


def trial(x: np.ndarray, solver: str, seed: int, options: dict) -> Trial:
    by = np.random.default_rng(seed).integers(8, size=len(x))
    exact = up.GaussianMixture(3, random_state=seed, **options).fit(x, by=by)
    model = up.GaussianMixture(3, solver=solver, fraction=0.5, random_state=seed, **options).fit(x, by=by)
    start = {"weights_init": model.weights_, "means_init": model.means_, "precisions_init": model.precisions_}
    # with all clients
    continued = up.GaussianMixture(3, solver="fedem", max_iter=options["max_iter"], **start).fit(x, by=by)
    gain = continued.score(x) - model.score(x)
    return Trial(model.score(x) - exact.score(x), gain, model.converged_, model.n_iter_, exact.n_iter_)


def convergence(seeds: range, options: dict) -> None:
    for solver in SOLVERS:
        rows = []
        for name, x in tables().items():
            found = [trial(x, solver, seed, options) for seed in seeds]
            rows += found
            print(f"{solver}, {name}: {summary(found)}", flush=True)
        print(f"{solver}, all tables: {summary(rows)}", flush=True)


def summary(found: list[Trial]) -> str:
    gap, continued, converged, rounds, exact_rounds = (np.array(column) for column in zip(*found))
    below = gap < -NEAR
    unfinished = continued > NEAR
    return (
        f"{(~below).sum()} of {len(found)} at most {NEAR} below exact EM, worst {gap.min():.3g}; "
        f"{converged.sum()} converged, of these {(converged & below).sum()} lower, "
        f"{(converged & unfinished).sum()} not at an optimum; "
        f"median rounds {np.median(rounds):.0f} (exact {np.median(exact_rounds):.0f})"
    )


def levels(seeds: int) -> None:
    for name in ("breast cancer", "diabetes"):
        x, crashes, runs = tables()[name], 0, 0
        for level in range(1, 8):
            for seed in range(seeds):
                by = np.random.default_rng(seed).integers(8, size=len(x))
                options = {"solver_options": {"levels": level}, "random_state": seed, "max_iter": 40}
                runs += 1
                try:
                    fitted = up.GaussianMixture(3, solver="fedem", **options).fit(x, by=by)
                    crashes += not np.isfinite(fitted.score(x))
                except ValueError as error:
                    crashes += 1
                    print(f"levels={level}, {name}, seed {seed}: {error}", flush=True)
        print(f"levels 1 to 7, {name}: {crashes} of {runs} runs crashed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--level-seeds", type=int, default=20)
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--random-start", action="store_true", help="of all solvers, in place of the default start")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    options = {"max_iter": given.max_iter} | ({"init_params": "random"} if given.random_start else {})
    convergence(range(given.first_seed, given.first_seed + given.seeds), options)
    levels(given.level_seeds)


if __name__ == "__main__":
    main()
