"""Fitted numbers of every public estimator on small data: a table to compare before and after a change that should move none.

    python benchmarks/fitted_numbers.py --write     # keep today's numbers in fitted_numbers.json
    python benchmarks/fitted_numbers.py             # compare with them

Bits depend on the machine's linear algebra, so the table is compared on the machine that wrote it; elsewhere, the relative difference
tells how far the numbers are apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "contracts"))

import unpooled as up  # noqa: E402
from unpooled import baselines, store, tree  # noqa: E402
from unpooled.saving import plain  # noqa: E402

TABLE = Path(__file__).with_suffix(".json")


def more_cases() -> dict[str, Any]:
    """Public estimators that the contract tests do not list, or list with other settings."""
    from estimators import Case, holes, labelled, mixture_data, regression_data

    counts = np.random.default_rng(1).poisson(4.0, size=(24, 9))
    visits = [np.column_stack([np.full(9, i), np.arange(9), row]).astype(float) for i, row in enumerate(counts)]
    cells = {f"c{c}": np.concatenate(visits[c::4])[c::2] for c in range(4)}
    gaussian = {"random_state": 0, "max_iter": 15}
    return {
        **default_starts(),
        "GaussianMixture fedem": Case(lambda: up.GaussianMixture(3, solver="fedem", **gaussian), mixture_data),
        "GaussianMixture vr-fedem": Case(lambda: up.GaussianMixture(3, solver="vr-fedem", **gaussian), mixture_data),
        "MixtureImputer": Case(lambda: up.MixtureImputer(random_state=0, max_iter=20), holes),
        "FedMissEM": Case(lambda: up.FedMissEM(rank=1, family="poisson", random_state=0, max_iter=20), lambda: cells),
        "OpenMixture default": Case(lambda: up.OpenMixture(random_state=0), mixture_data),
        "BayesianRegression": Case(lambda: up.BayesianRegression(), regression_data),
        "FedGMM default": Case(lambda: up.FedGMM(max_iter=10, random_state=0), labelled),
        "FedConceptEM default": Case(lambda: up.FedConceptEM(max_iter=10, random_state=0), labelled),
        **{
            name: Case(lambda name=name: getattr(baselines, name)(random_state=0), mixture_data)
            for name in ("KFed", "FFCM", "AFCL", "LocalEM", "PooledGMM", "PooledKMeans")
            if hasattr(baselines, name)
        },
    }


def default_starts() -> dict[str, Any]:
    """Mixtures with their default start and all kinds of columns; the contract tests have quicker ones."""
    from estimators import FOUR_KINDS, Case, clustering, gm, holes, mixed, mixture_data, table

    shapes = {shape: {"covariance_type": shape} for shape in ("full", "tied", "diag", "spherical")}
    both = {"accelerated": {"accelerate": True}, "personal": {"personal_weights": True}}
    searched = {"candidates": {"n_components": [1, 2, 4], "n_init": 2}, "cohort": {"fraction": 0.5}, "missing": {}}
    cases = {
        f"GaussianMixture {name}": Case(
            gm(init_params="cells", **options), holes if name == "missing" else mixture_data
        )
        for name, options in {**shapes, **both, **searched}.items()
    }
    four = {"n_components": 3, "kinds": FOUR_KINDS}
    for name, options in {"": {}, **both, "candidates": {"n_components": [1, 2], "n_init": 2}}.items():
        cases[f"MixedMixture {name}".strip()] = Case(mixed(**{**four, **options}), table)
    cases["OpenMixture"] = Case(clustering("OpenMixture", structure="gaussians", max_local=4), mixture_data)
    return cases


def learned(estimator: Any) -> dict[str, np.ndarray]:
    """Path -> numbers of everything that a fit sets, the history's clock times left out."""
    fitted = {k: v for k, v in vars(estimator).items() if k.endswith("_") and not k.startswith("_") and k != "history_"}
    saved = store.loads(store.dumps(plain({k: v for k, v in fitted.items() if not callable(v)})))
    return {path: np.asarray(leaf) for path, leaf in tree.iter_paths(saved) if np.asarray(leaf).dtype.kind in "fiub"}


def row_of(numbers: dict[str, np.ndarray]) -> dict[str, Any]:
    """A digest of all bits, and sums of magnitudes that tell how far two tables are apart."""
    digest = hashlib.sha256()
    for path in sorted(numbers):
        digest.update(np.ascontiguousarray(numbers[path]).tobytes())
    sums = {path: float(np.abs(a[np.isfinite(a)]).sum()) for path, a in sorted(numbers.items())}
    return {"sha256": digest.hexdigest(), "sums": sums}


def measure() -> dict[str, Any]:
    from estimators import ESTIMATORS

    table = {}
    for name, case in {**ESTIMATORS, **more_cases()}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                table[name] = row_of(learned(case.make().fit(case.data())))
            except Exception as error:
                table[name] = {"sha256": f"{type(error).__name__}: {error}"[:200], "sums": {}}
        print(f"{name:32} {table[name]['sha256'][:60]}", flush=True)
    return table


def difference(before: dict[str, float], after: dict[str, float]) -> float:
    """The largest relative difference of the sums that both have."""
    both = before.keys() & after.keys()
    return max((abs(before[k] - after[k]) / max(abs(before[k]), 1e-300) for k in both), default=np.nan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    table = measure() if (args := parser.parse_args()) else {}
    if args.write:
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
        return
    before = json.loads(TABLE.read_text())
    moved = {n for n in before.keys() & table.keys() if before[n]["sha256"] != table[n]["sha256"]}
    for name in sorted(moved):
        print(f"moved: {name}, by {difference(before[name]['sums'], table[name]['sums']):.1e} relative")
    gone, new = sorted(before.keys() - table.keys()), sorted(table.keys() - before.keys())
    print(f"{len(before) - len(gone) - len(moved)} of {len(before)} have the same bits; gone: {gone}; new: {new}")


if __name__ == "__main__":
    main()
