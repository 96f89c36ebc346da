"""The methods under comparison, by name; what each is told stands beside it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from _data import Problem

import unpooled as up
from unpooled import baselines
from unpooled.metrics.clustering import score, silhouette

# name -> (what it is told, how it is made)
METHODS: dict[str, tuple[str, Callable[[Problem, int], Any]]] = {
    "OpenMixture auto": ("", lambda p, s: up.OpenMixture(random_state=s)),
    "OpenMixture gaussians": ("", lambda p, s: up.OpenMixture("gaussians", random_state=s)),
    "OpenMixture topics": ("", lambda p, s: up.OpenMixture("topics", random_state=s)),
    "FedGEM": ("K_g", lambda p, s: up.FedGEM(p.local_k, random_state=s)),
    "FedGEM, K_g by BIC": ("", lambda p, s: up.FedGEM(random_state=s)),
    "AFCL": ("2 K seeds", lambda p, s: baselines.AFCL(2 * p.k, batch=3, max_iter=10, random_state=s)),
    "k-FED": ("K, K_g", lambda p, s: baselines.KFed(p.k, n_local=p.local_k, random_state=s)),
    "FFCM average": ("K", lambda p, s: baselines.FFCM(p.k, random_state=s)),
    "FFCM cluster": ("K", lambda p, s: baselines.FFCM(p.k, aggregation="cluster", random_state=s)),
    "federated k-means": ("K", lambda p, s: baselines.FederatedKMeans(p.k, random_state=s)),
    "local EM": ("K_g", lambda p, s: baselines.LocalEM(p.local_k, random_state=s)),
    "central GMM": ("K", lambda p, s: baselines.PooledClustering("gmm", n_components=p.k, random_state=s)),
    "central GMM, BIC": ("", lambda p, s: _bic(p, s)),
    "central DP-GMM": ("", lambda p, s: baselines.PooledClustering("bayesian", n_components=3 * p.k, random_state=s)),
    "central HDBSCAN": ("", lambda p, s: baselines.PooledClustering("hdbscan")),
}
MAIN = ("OpenMixture auto", "central GMM", "FedGEM")


def _bic(p: Problem, seed: int) -> Any:
    return baselines.PooledClustering("gmm-bic", n_components=3 * p.k, n_init=1, random_state=seed)


def measure(problem: Problem, method: str, seed: int) -> dict[str, Any]:
    """One fit and its scores on both tasks."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS[method][1](problem, seed).fit(problem.rows)
    seconds = time.process_time() - start
    labels = {name: np.asarray(found) for name, found in model.labels_.items()}
    names = sorted(labels)
    x, z = (np.concatenate([part[n] for n in names]) for part in (problem.rows, labels))
    row = score(problem.truth, labels)._asdict() | {"silhouette": silhouette(x, z), "cpu_seconds": seconds}
    return row | {"structure": getattr(model, "structure_", ""), "rounds": len(getattr(model, "history_", []))}
