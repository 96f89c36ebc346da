"""Fed-TCGA-BRCA of FLamby: Cox regression over its six regions, on its split; concordance of the test patients.

The penalty is chosen on the training patients alone: as the one that makes them most probable, and by cross-validated partial likelihood
over the federation. All regions share a baseline hazard, or each has its own.
Run by `unpooled reproduce shelf/tcga_brca`, or as a script. Needs `tcga_brca_6regions.csv.gz` in the folder that UNPOOLED_DATA names.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import unpooled as up
from unpooled.datasets import shared
from unpooled.errors import DataWarning

PENALIZERS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
ASIDE = ("pid", "E", "T", "tss", "region", "fold")
DIFFERS = (
    "FLamby trains a linear Cox model by rounds of gradient steps on batches; here the partial likelihood of all training patients "
    "is maximised, with a ridge penalty chosen on them."
)
PAPER = {  # means over the five seeds of FLamby's published results
    "pooled training": {"pooled test": 0.704, "mean over regions": 0.676},
    "FedAvg": {"pooled test": 0.735, "mean over regions": 0.732},
    "FedAdam, its best strategy": {"pooled test": 0.842, "mean over regions": 0.815},
}


class Patients(NamedTuple):
    x: np.ndarray  # (n, 39)
    y: np.ndarray  # (n, 2) time, event
    region: np.ndarray  # (n,)

    def pick(self, which: np.ndarray) -> Patients:
        return Patients(self.x[which], self.y[which], self.region[which])


def load() -> tuple[Patients, Patients]:
    """Training and test patients, as FLamby splits them."""
    columns = shared.table("tcga_brca_6regions")
    x = np.stack([columns[c].astype(float) for c in columns if c not in ASIDE], 1)
    y = np.stack([columns["T"].astype(float), columns["E"].astype(float)], 1)
    everybody = Patients(x, y, columns["region"].astype(str))
    fold = columns["fold"].astype(str)
    return everybody.pick(fold == "train"), everybody.pick(fold == "test")


def most_probable(train: Patients, strata: str | None) -> up.Cox:
    """The penalty that makes the training patients most probable."""
    return up.Cox(penalizer="auto", strata=strata, concordance=False).fit(train.x, train.y, by=train.region)


def cross_validated(train: Patients, strata: str | None) -> up.Cox:
    """The penalty of the largest cross-validated partial likelihood over the federation, by `up.compare`."""
    models = {str(p): up.Cox(penalizer=p, strata=strata, concordance=False) for p in PENALIZERS}
    best = up.compare(models, train.x, train.y, by=train.region, cv=5).best
    return models[best].fit(train.x, train.y, by=train.region)


def measures(model: up.Cox, test: Patients) -> dict[str, float]:
    """Concordance of all test patients, and the mean over regions of each region's own."""
    regions = [test.pick(test.region == r) for r in np.unique(test.region)]
    return {
        "pooled test": model.score(test.x, test.y),
        "mean over regions": float(np.mean([model.score(r.x, r.y) for r in regions])),
    }


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    """One row per method and measure; nothing is random, so that seeds do not matter."""
    train, test = load()
    rows = [
        {"method": f"FLamby, {name}", "metric": metric, "paper": value, "ours": None}
        for name, measured in PAPER.items()
        for metric, value in measured.items()
    ]
    ways = {"penalizer='auto'": most_probable} | ({} if small else {"penalizer by up.compare": cross_validated})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        for strata in (None, "site"):
            for name, way in ways.items():
                model = way(train, strata)
                found = measures(model, test)
                method = f"Cox, {name}" + (", strata='site'" if strata else "")
                say(f"{method}: penalizer {model.penalizer_:.4f}, {found}")
                rows += [
                    {"method": method, "metric": m, "paper": None, "ours": value, "penalizer": model.penalizer_}
                    for m, value in found.items()
                ]
    return rows


if __name__ == "__main__":
    for row in run("--small" in sys.argv, 1, Path("."), print):
        print(row)
