"""Fed-TCGA-BRCA of FLamby: Cox regression over its six regions, on its split; concordance of the test patients.

The penalty is chosen on the training patients alone, by cross-validated partial likelihood; a seed is a way to deal them into folds.
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
from unpooled.maths import partial_likelihood as likelihood

SEEDS = 10
FOLDS = 5
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


def fit(rows: Patients, penalizer: float, strata: str | None) -> up.Cox:
    model = up.Cox(penalizer=penalizer, strata=strata, concordance=False)
    return model.fit(rows.x, rows.y, by=rows.region)


def loglik(model: up.Cox, rows: Patients, strata: str | None) -> float:
    """The log partial likelihood of some patients, by region where the model is stratified."""
    parts = [rows] if strata is None else [rows.pick(rows.region == r) for r in np.unique(rows.region)]
    return sum(_loglik(model, part) for part in parts)


def _loglik(model: up.Cox, rows: Patients) -> float:
    time, died = rows.y[:, 0], rows.y[:, 1] == 1
    if not died.any():
        return 0.0
    starts = np.unique(time[died])
    step = likelihood.last_step(starts, time)
    number = np.bincount(step[died], minlength=len(starts)).astype(float)
    deaths = likelihood.Deaths(number, number)
    eta = model.predict(rows.x)
    sums = likelihood.sums(eta[:, None], np.exp(eta), step, died, likelihood.tied(deaths, "efron"), len(starts))
    return float(eta[died].sum()) + likelihood.terms(deaths, sums, "efron").loglik


def chosen_penalizer(rows: Patients, strata: str | None, seed: int) -> float:
    """The penalty with the largest cross-validated partial likelihood; folds are dealt within each region."""
    fold = np.zeros(len(rows.x), int)
    rng = np.random.default_rng(seed)
    for region in np.unique(rows.region):
        where = np.flatnonzero(rows.region == region)
        fold[rng.permutation(where)] = np.arange(len(where)) % FOLDS
    return max(PENALIZERS, key=lambda p: sum(_held_out(rows, fold == f, p, strata) for f in range(FOLDS)))


def _held_out(rows: Patients, out: np.ndarray, penalizer: float, strata: str | None) -> float:
    """What the patients left out add to the likelihood of all, under the fit without them."""
    model = fit(rows.pick(~out), penalizer, strata)
    return loglik(model, rows, strata) - loglik(model, rows.pick(~out), strata)


def measures(model: up.Cox, test: Patients) -> dict[str, float]:
    """Concordance of all test patients, and the mean over regions of each region's own."""
    regions = [test.pick(test.region == r) for r in np.unique(test.region)]
    return {
        "pooled test": model.score(test.x, test.y),
        "mean over regions": float(np.mean([model.score(r.x, r.y) for r in regions])),
    }


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    """One row per method and measure."""
    train, test = load()
    rows = [
        {"method": f"FLamby, {name}", "metric": metric, "paper": value, "ours": None}
        for name, measured in PAPER.items()
        for metric, value in measured.items()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        for name, strata in (("Cox", None), ("Cox, strata='site'", "site")):
            rows += _rows(name, strata, train, test, 1 if small else seeds, say)
    return rows


def _rows(name: str, strata: str | None, train: Patients, test: Patients, seeds: int, say: Callable) -> list[dict]:
    found, penalties = [], []
    for seed in range(seeds):
        penalties.append(chosen_penalizer(train, strata, seed))
        found.append(measures(fit(train, penalties[-1], strata), test))
        say(f"{name}, seed {seed}: penalizer {penalties[-1]}, {found[-1]}")
    spread = {m: [f[m] for f in found] for m in found[0]}
    return [
        {"method": name, "metric": m, "seeds": seeds, "paper": None, "ours": float(np.mean(v)), "spread": float(np.std(v)),
         "penalizers": sorted(set(penalties))}
        for m, v in spread.items()
    ]  # fmt: skip


if __name__ == "__main__":
    for row in run("--small" in sys.argv, SEEDS, Path("."), print):
        print(row)
