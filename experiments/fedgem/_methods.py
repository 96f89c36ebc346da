"""The methods under comparison, by name; what each is told stands beside it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from hashlib import sha256
from typing import Any, ClassVar

import _device
import numpy as np
from _data import Problem
from _sent import Sent

import unpooled as up
from unpooled import baselines
from unpooled.metrics.clustering import centre_error, label_centres, score, silhouette

RATES = (1e-2, 1e-3, 1e-4)  # of AFCL, whose seeds all fall into one at some rate on some data


class Tuned:
    """Of several models the one with the best silhouette over all rows: no labels, but more than a federation would give away."""

    def __init__(self, models: list[Any]):
        self.models = models

    def fit(self, rows: dict[str, np.ndarray]) -> Any:
        names = sorted(rows)
        x = np.concatenate([rows[n] for n in names])
        fits = [model.fit(rows) for model in self.models]
        return max(fits, key=lambda m: silhouette(x, np.concatenate([m.labels_[n] for n in names])))


class Once:
    """A pooled method without chance: what it says of the same rows is kept, however they are dealt to clients."""

    kept: ClassVar[dict[str, np.ndarray]] = {}

    def __init__(self, method: str):
        self.method = method

    def fit(self, rows: dict[str, np.ndarray]) -> Once:
        names = sorted(rows)
        x = np.concatenate([rows[n] for n in names])
        order = np.lexsort(x.T)
        key = sha256(x[order].tobytes()).hexdigest()
        if key not in self.kept:
            found = baselines.PooledClustering(self.method).fit({"all": x[order]})
            self.kept[key] = found.labels_["all"]
        labels = np.empty(len(x), dtype=int)
        labels[order] = self.kept[key]
        self.labels_ = dict(zip(names, np.split(labels, np.cumsum([len(rows[n]) for n in names])[:-1])))
        return self


# name -> (what it is told, how it is made)
METHODS: dict[str, tuple[str, Callable[[Problem, int], Any]]] = {
    "OpenMixture auto": ("", lambda p, s: up.OpenMixture(random_state=s)),
    "OpenMixture gaussians": ("", lambda p, s: up.OpenMixture("gaussians", random_state=s)),
    "OpenMixture topics": ("", lambda p, s: up.OpenMixture("topics", random_state=s)),
    "OpenMixture auto, compressed": ("", lambda p, s: Sent(up.OpenMixture(random_state=s))),
    "FedGEM": ("K_g", lambda p, s: up.FedGEM(p.local_k, min_count=0, random_state=s)),
    "FedGEM, K_g by BIC": ("", lambda p, s: up.FedGEM(min_count=0, random_state=s)),
    "AFCL": ("2 K seeds", lambda p, s: Tuned([_afcl(p, s, rate) for rate in RATES])),
    "k-FED": ("K, K_g", lambda p, s: baselines.KFed(p.k, n_local=p.local_k, random_state=s)),
    "FFCM average": ("K", lambda p, s: baselines.FFCM(p.k, random_state=s)),
    "FFCM cluster": ("K", lambda p, s: baselines.FFCM(p.k, aggregation="cluster", random_state=s)),
    "federated k-means": ("K", lambda p, s: baselines.FederatedKMeans(p.k, random_state=s)),
    "local EM": ("K_g", lambda p, s: baselines.LocalEM(p.local_k, random_state=s)),
    "central GMM": ("K", lambda p, s: baselines.PooledClustering("gmm", n_components=p.k, random_state=s)),
    "central GMM, BIC": ("", lambda p, s: _bic(p, s)),
    "central DP-GMM": ("", lambda p, s: baselines.PooledClustering("bayesian", n_components=3 * p.k, random_state=s)),
    "central HDBSCAN": ("", lambda p, s: Once("hdbscan")),
}
MAIN = ("OpenMixture auto", "central GMM", "FedGEM")
TOLD = {name: told for name, (told, _) in METHODS.items()}
RIVALS = tuple(m for m in METHODS if m not in MAIN and not m.startswith("OpenMixture"))


def _afcl(p: Problem, seed: int, rate: float) -> Any:
    return baselines.AFCL(2 * p.k, rate=rate, batch=3, max_iter=10, random_state=seed)


def _bic(p: Problem, seed: int) -> Any:
    kind = _device.OnDevice if _device.there_is_one() else baselines.PooledClustering
    return kind("gmm-bic", n_components=3 * p.k, n_init=1, random_state=seed)


def measure(problem: Problem, method: str, seed: int) -> dict[str, Any]:
    """One fit and its scores on both tasks."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS[method][1](problem, seed).fit(problem.rows)
    seconds = time.process_time() - start
    labels = {name: np.asarray(found) for name, found in model.labels_.items()}
    names = sorted(labels)
    x, y, z = (np.concatenate([part[n] for n in names]) for part in (problem.rows, problem.truth, labels))
    row = score(problem.truth, labels)._asdict() | {"silhouette": silhouette(x, z), "centre_error": _astray(x, y, z)}
    row |= {"cpu_seconds": seconds, "structure": getattr(model, "structure_", "")}
    return row | {"rounds": len(getattr(model, "history_", []))} | getattr(model, "sent_", {})


def _astray(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """How far matched centres are off, in units of a row's distance from its own true centre (root mean square)."""
    true = label_centres(x, y)
    own = x - true[np.unique(y, return_inverse=True)[1]]
    return centre_error(true, label_centres(x, z)).matched / float(np.sqrt((own**2).sum(1).mean()))
