"""The methods that the papers compare with, one per file, with the same interface as the models.

A class is imported when it is first used. The first line of each file says what it sends.

- Classifiers: `fedavg` first; `fedprox`, `fedavg_plus`, `local`, `apfl` and `pfedme` build on it; `ifca` is the base of `fesem` and
  `fedsoft`; `fedem` (a mixture of learners), `clustered`. `rollback` is what models of single clients share.
- Clusters: `centres` (the base), then `federated_kmeans`, `ffcm`, `kfed`, `afcl`; `local_em`; `pooled_clustering` as a reference.
- Regression: `regression` (FedAvg and FedProx), then `pfedgp`, `fedloc`; `central_gp` with `exact_gp` as a reference.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "LocalOnly": "unpooled.baselines.local",
    "FedAvg": "unpooled.baselines.fedavg",
    "FedProx": "unpooled.baselines.fedprox",
    "FedAvgPlus": "unpooled.baselines.fedavg_plus",
    "ClusteredFL": "unpooled.baselines.clustered",
    "PFedMe": "unpooled.baselines.pfedme",
    "FedEM": "unpooled.baselines.fedem",
    "KFed": "unpooled.baselines.kfed",
    "FFCM": "unpooled.baselines.ffcm",
    "FederatedKMeans": "unpooled.baselines.federated_kmeans",
    "AFCL": "unpooled.baselines.afcl",
    "LocalEM": "unpooled.baselines.local_em",
    "PooledClustering": "unpooled.baselines.pooled_clustering",
    "IFCA": "unpooled.baselines.ifca",
    "FeSEM": "unpooled.baselines.fesem",
    "FedSoft": "unpooled.baselines.fedsoft",
    "APFL": "unpooled.baselines.apfl",
    "CentralGP": "unpooled.baselines.central_gp",
    "FedAvgRegression": "unpooled.baselines.regression",
    "FedProxRegression": "unpooled.baselines.regression",
    "PFedGP": "unpooled.baselines.pfedgp",
    "FedLoc": "unpooled.baselines.fedloc",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a class when it is first used."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'unpooled.baselines' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of all classes."""
    return sorted(__all__)
