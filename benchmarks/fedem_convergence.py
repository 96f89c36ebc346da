"""Half of the clients absent in every round: do FedEM and VR-FedEM end where exact EM does, and do they say so if they do not?

    python benchmarks/fedem_convergence.py             # five tables, ten splits and seeds each

Five tables of scikit-learn (iris, wine, breast cancer, diabetes, digits by ten principal components), K = 3, eight clients at random,
`fraction=0.5`, default parameters but `max_iter=300`. Exact EM starts from the same start and stops by the same tol. A run is good if it is
at most 0.01 per row below exact EM; a run that is not must have `converged_ = False`. The last lines try the levels 1 to 7 with all
clients present on the two tables whose columns nearly depend on each other: none may crash.
"""

from __future__ import annotations

import argparse
import warnings

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


def trial(x: np.ndarray, solver: str, seed: int, max_iter: int) -> tuple[float, bool, int, int]:
    """(log-likelihood per row against exact EM, converged_, rounds, rounds of exact EM)."""
    by = np.random.default_rng(seed).integers(8, size=len(x))
    exact = up.GaussianMixture(3, random_state=seed, max_iter=max_iter).fit(x, by=by)
    model = up.GaussianMixture(3, solver=solver, fraction=0.5, random_state=seed, max_iter=max_iter).fit(x, by=by)
    return model.score(x) - exact.score(x), model.converged_, model.n_iter_, exact.n_iter_


def convergence(seeds: int, max_iter: int) -> None:
    for solver in SOLVERS:
        rows = []
        for name, x in tables().items():
            found = [trial(x, solver, seed, max_iter) for seed in range(seeds)]
            rows += found
            print(f"{solver}, {name}: {summary(found)}", flush=True)
        print(f"{solver}, all tables: {summary(rows)}", flush=True)


def summary(found: list[tuple[float, bool, int, int]]) -> str:
    gaps = np.array([gap for gap, *_ in found])
    converged = np.array([c for _, c, *_ in found])
    good = gaps > -NEAR
    rounds, exact = (np.median([row[i] for row in found]) for i in (2, 3))
    return (
        f"{good.sum()} of {len(found)} at most {NEAR} below exact EM, {(~good & ~converged).sum()} others say so, "
        f"{(~good & converged).sum()} say that they converged; worst {gaps.min():.3g}, converged {converged.sum()}, "
        f"median rounds {rounds:.0f} (exact {exact:.0f})"
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
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--level-seeds", type=int, default=20)
    parser.add_argument("--max-iter", type=int, default=300)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    convergence(given.seeds, given.max_iter)
    levels(given.level_seeds)


if __name__ == "__main__":
    main()
