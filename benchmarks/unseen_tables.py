"""Defaults on tables of your own: classifiers, regressions, imputation and counts beside what scikit-learn does with the pooled rows.

    python benchmarks/unseen_tables.py FOLDER [--tasks classify,regress,newcomers,few,gaps,counts] [--only NAME] [--seeds 3]

FOLDER has csv files and `contents.csv` with a line per file: file, task (classify, regress, gaps or counts), label, site, source.
`label` is the column to predict, `site` the column of clients (empty: rows are dealt out at random). A counts file has a row per site
and a column per date. Texts are given to the models as they are; gaps among predictors are filled by the mean (a level of their own
for texts), as classifiers need complete rows. Rivals see numbers standardised and an indicator per level but the first.

classify   mean over clients of the log-loss, beside logistic regression of all rows with a column per site and of each client alone;
           worst client of at least 50 training rows relative to itself alone; calibration error, and what is left of it by chance
           where probabilities are exactly right; alarms of `is_novel` at 5 %
regress    error over the better of an exact Gaussian process and gradient boosting on the same columns; coverage of 90 % intervals
newcomers  coverage at sites never seen (a quarter left out in turn, `recalibrate="clients"`), width over that for known sites
few        coverage of BayesianRegression fitted to five rows
gaps       error of MixtureImputer over that of IterativeImputer, coverage, with a fifth of the cells hidden at random and not
counts     error of FedMissEM over that of a log-linear model of site and date whose penalty is chosen by visits held back

A line of text per trial; --out appends the same as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from classifier_tables import MODELS, calibration_error, chance_error, losses
from fedbnr_tables import covered, gaussian_process, rmse
from fedmissem_tables import trial as missem_trial
from imputation_tables import WAYS, hidden_cells
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression

import unpooled as up
from unpooled.models.fedmissem.estimator import visits

FIRST_SEED, N_CLIENTS, N_SITES, LEAST_ROWS, REGRESSION_ROWS, FEW_FITS = 7700, 8, 16, 20, 1300, 40
CLASSIFIERS = ("FedAvg", "FedGMM", "FedConceptEM")
Frames = dict[str, pd.DataFrame]


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with gaps of numbers filled by the mean, and those of texts by a level of their own."""
    numbers = frame.select_dtypes("number").columns
    filled = frame.copy()
    filled[numbers] = frame[numbers].fillna(frame[numbers].mean())
    texts = [c for c in frame if c not in numbers]
    filled[texts] = frame[texts].astype(object).where(frame[texts].notna(), "missing").astype(str)
    return filled


def encoded(frame: pd.DataFrame) -> np.ndarray:
    """Numbers standardised, texts as an indicator per level but the first."""
    numbers = frame.select_dtypes("number")
    scale = numbers.std(ddof=0).replace(0, 1)
    texts = frame.drop(columns=numbers.columns)
    indicators = pd.get_dummies(texts, drop_first=True).to_numpy(float) if texts.shape[1] else np.empty((len(frame), 0))
    return np.column_stack([((numbers - numbers.mean()) / scale).to_numpy(float), indicators])


def clients_of(frame: pd.DataFrame, site: str, n_random: int, rng: np.random.Generator) -> np.ndarray:
    """The client of each row as a text: the column, or at random."""
    return frame[site].astype(str).to_numpy() if site else rng.integers(n_random, size=len(frame)).astype(str)


# ---- classifiers ----


def split(by: np.ndarray, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(training rows, test rows) of each client of at least 20 rows."""
    parts = {name: rng.permutation(np.flatnonzero(by == name)) for name in np.unique(by)}
    return {n: tuple(np.split(rows, [int(0.7 * len(rows))])) for n, rows in parts.items() if len(rows) >= LEAST_ROWS}


def regressions(x: np.ndarray, y: np.ndarray, parts: dict) -> dict[str, tuple[float, float]]:
    """Log-loss of (all rows with a column per site, the client alone) at each client."""
    names = list(parts)
    site = np.zeros((len(x), len(names)))
    for i, (known, new) in enumerate(parts.values()):
        site[known, i] = site[new, i] = 1
    known = np.concatenate([rows for rows, _ in parts.values()])
    together = LogisticRegression(max_iter=5000).fit(np.c_[x, site][known], y[known])
    classes = together.classes_
    found = {}
    for name, (own, new) in parts.items():
        proba = np.zeros((len(new), len(classes)))
        if len(np.unique(y[own])) > 1:
            alone = LogisticRegression(max_iter=5000).fit(x[own], y[own])
            proba[:, np.searchsorted(classes, alone.classes_)] = alone.predict_proba(x[new])
        else:
            proba[:, np.searchsorted(classes, y[own[0]])] = 1
        spare = 0.5 / (len(own) + 0.5 * len(classes))
        proba = (proba + spare) / (1 + spare * len(classes))
        pooled = together.predict_proba(np.c_[x, site][new])
        found[name] = tuple(float(losses(p, classes, y[new]).mean()) for p in (pooled, proba))
    return found


def classify(table: pd.Series, frame: pd.DataFrame, seed: int) -> Iterator[dict]:
    rng = np.random.default_rng(seed)
    frame = complete(frame)
    by = clients_of(frame, table.site, N_CLIENTS, rng)
    y = frame[table.label].astype(str).to_numpy()
    columns = frame.drop(columns=[c for c in (table.site, table.label) if c])
    parts = split(by, rng)
    rivals = regressions(encoded(columns), y, parts)
    rows = columns.assign(label=y)
    kinds = dict.fromkeys(columns.select_dtypes(exclude="number"), "category")
    train: Frames = {name: rows.iloc[known] for name, (known, _) in parts.items()}
    for name in CLASSIFIERS:
        start = time.process_time()
        model = MODELS[name](seed).fit(up.federate(train, label="label", columns=kinds))
        seconds = time.process_time() - start
        probas = {n: model.predict_proba(columns.iloc[new], client=n) for n, (_, new) in parts.items()}
        ours = {n: float(losses(probas[n], model.classes_, y[new]).mean()) for n, (_, new) in parts.items()}
        new = np.concatenate([rows for _, rows in parts.values()])
        proba = np.concatenate(list(probas.values()))
        hit = model.classes_[proba.argmax(1)] == y[new]
        alarms = float(model.is_novel(columns.iloc[new]).mean()) if hasattr(model, "is_novel") else None
        pooled, alone = (float(np.mean([r[i] for r in rivals.values()])) for i in (0, 1))
        large = {n: ours[n] / rivals[n][1] - 1 for n in parts if len(parts[n][0]) >= 50}
        yield {
            "model": name,
            "loss": float(np.mean(list(ours.values()))),
            "pooled": pooled,
            "alone": alone,
            "to better": float(np.mean(list(ours.values()))) / min(pooled, alone) - 1,
            "clients": large,
            "ece": calibration_error(proba, hit),
            "chance": chance_error(proba),
            "rows": len(new),
            "alarms": alarms,
            "s": seconds,
        }


# ---- regressions ----


def regression_table(table: pd.Series, frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """(columns, y, client) of some rows."""
    rng = np.random.default_rng(seed)
    frame = complete(frame).iloc[rng.permutation(len(frame))[:REGRESSION_ROWS]].reset_index(drop=True)
    by = clients_of(frame, table.site, N_SITES, rng)
    y = frame[table.label].to_numpy(float)
    columns = frame.drop(columns=[c for c in (table.site, table.label) if c])
    return columns[[c for c in columns if columns[c].nunique() > 1]], y, by


def fitted(model: object, columns: pd.DataFrame, y: np.ndarray, by: np.ndarray) -> tuple[object, float, float]:
    """(model, processor seconds, megabytes up)."""
    fed = up.federate(columns.assign(label_=y, client_=by), label="label_", by="client_")
    start = time.process_time()
    model.fit(fed)
    seconds = time.process_time() - start
    return model, seconds, sum(row.bytes_up for row in fed.journal.exchanges) / 1e6


def regress(table: pd.Series, frame: pd.DataFrame, seed: int) -> Iterator[dict]:
    columns, y, by = regression_table(table, frame, seed)
    cut = int(0.6 * len(y))
    fit, new = slice(0, cut), slice(cut, None)
    x = encoded(columns)
    boosted = GradientBoostingRegressor(random_state=seed).fit(x[fit], y[fit]).predict(x[new])
    process = gaussian_process(x[fit], y[fit], x[new])
    best = min(rmse(y[new], boosted), rmse(y[new], process))
    for model in (up.BayesianRegression(), up.FedBNR(random_state=seed)):
        model, seconds, megabytes = fitted(model, columns[fit], y[fit], by[fit])
        ends = model.interval(columns[new])
        error = rmse(y[new], model.predict(columns[new]))
        found = {"model": type(model).__name__, "rmse": error, "process": rmse(y[new], process)}
        found |= {"boosting": rmse(y[new], boosted), "ratio": error / best, "covered": covered(y[new], ends)}
        yield found | {"mb": megabytes, "cells": int(x[fit].size), "s": seconds}


def newcomers(table: pd.Series, frame: pd.DataFrame, seed: int) -> Iterator[dict]:
    columns, y, by = regression_table(table, frame, seed)
    fold = np.random.default_rng(seed).permutation(len(np.unique(by))) % 4
    left_out = fold[np.unique(by, return_inverse=True)[1]]
    for cls in (up.BayesianRegression, up.FedBNR):
        own = {"random_state": seed} if cls is up.FedBNR else {}
        inside, width, known_width = [], [], []
        for i in range(4):
            new = left_out == i
            models = [
                fitted(cls(recalibrate=how, **own), columns[~new], y[~new], by[~new])[0] for how in ("clients", True)
            ]
            for_new, for_known = (model.interval(columns[new]) for model in models)
            inside.append((for_new[0] <= y[new]) & (y[new] <= for_new[1]))
            width.append(for_new[1] - for_new[0])
            known_width.append(for_known[1] - for_known[0])
        ratio = np.concatenate(width).mean() / np.concatenate(known_width).mean()
        yield {"model": cls.__name__, "covered": float(np.concatenate(inside).mean()), "width": float(ratio)}


def few(table: pd.Series, frame: pd.DataFrame, seed: int) -> Iterator[dict]:
    columns, y, _ = regression_table(table, frame, seed)
    x = encoded(columns)
    found = []
    for i in range(FEW_FITS):
        order = np.random.default_rng([seed, i]).permutation(len(y))
        fit, new = order[:5], order[5:105]
        if np.ptp(y[fit]) > 0:
            found.append(covered(y[new], up.BayesianRegression().fit(x[fit], y[fit]).interval(x[new])))
    yield {"model": "BayesianRegression", "covered": float(np.mean(found))}


# ---- gaps ----


def gaps(table: pd.Series, frame: pd.DataFrame, seed: int) -> Iterator[dict]:
    rng = np.random.default_rng(seed)
    by = clients_of(frame, table.site, 4, rng)
    x = frame.drop(columns=[c for c in (table.site, table.label) if c]).select_dtypes("number").to_numpy(float)
    some = rng.permutation(np.flatnonzero(~np.isnan(x).all(1)))[:600]
    x, by = x[some], by[some]
    for how in WAYS:
        kept = np.nanstd(x, axis=0) > 0
        hidden = hidden_cells(x[:, kept], how, rng)
        truth, given = x[:, kept], np.where(hidden, np.nan, x[:, kept])
        scale = np.nanstd(given, axis=0)
        start = time.process_time()
        imputer = up.MixtureImputer().fit(given, by=by)
        seconds = time.process_time() - start
        low, high = imputer.interval(given, 0.9)
        inside = ((low <= truth) & (truth <= high))[hidden]
        filled = (imputer.transform(given), IterativeImputer(random_state=0).fit_transform(given))
        ours, rival = (float(np.sqrt(np.mean(((f - truth) / scale)[hidden] ** 2))) for f in filled)
        yield {
            "model": how,
            "ours": ours,
            "iterative": rival,
            "ratio": ours / rival,
            "covered": float(inside.mean()),
            "s": seconds,
        }


def counts(table: pd.Series, frame: pd.DataFrame, seed: int) -> Iterator[dict]:
    errors, chose = missem_trial(visits(frame.drop(columns=[table.site]).to_numpy(float)), seed)
    yield {"model": "FedMissEM", **errors, "ratio": errors["FedMissEM"] / errors["log-linear"], "chose": chose}


# ---- all of them ----

TASKS = {"classify": classify, "regress": regress, "newcomers": newcomers, "few": few, "gaps": gaps, "counts": counts}
OF_REGRESSIONS = ("newcomers", "few")


def line(found: dict) -> str:
    shown = {k: v for k, v in found.items() if k not in ("clients", "source")}
    if found.get("clients"):
        shown["worst"] = max(found["clients"].values())
    return "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--only", default="", help="files whose names contain this")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    contents = pd.read_csv(given.folder / "contents.csv", dtype=str).fillna("")
    for task in given.tasks.split(","):
        kind = "regress" if task in OF_REGRESSIONS else task
        for _, table in contents[
            (contents.task == kind) & contents.file.str.contains(given.only, regex=False)
        ].iterrows():
            frame = pd.read_csv(given.folder / table.file)
            for seed in range(given.first_seed, given.first_seed + given.seeds):
                for found in TASKS[task](table, frame, seed):
                    row = {"task": task, "table": table.file.removesuffix(".csv"), "seed": seed, **found}
                    print(line(row), flush=True)
                    if given.out is not None:
                        with given.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
