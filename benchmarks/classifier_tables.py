"""Classifiers with default parameters on ten real federations, beside pooled logistic regression and each client alone.

    UNPOOLED_DATA=... python benchmarks/classifier_tables.py [--models FedAvg,FedGMM] [--tables heart,fair] [--seeds 0,1] [--splits 5]

Seven tenths of each client's rows train, the rest judge; every figure is a mean over --splits such splits of the same federation, since
the test rows of one split are too few for a share of alarms or for the log-loss of one client. Columns are standardised by the training
rows of all clients, missing values are the column's mean. Peers are scikit-learn's LogisticRegression (C=1): of all rows with a column per
site, and of each client alone (classes that a client has not seen get half a row each).

A line per table and model: mean over clients of the log-loss, how far it is from the better peer, the worst client of at least 50 training
rows relative to itself alone and how many are within 5 % of that, expected calibration error (15 bins, all test rows of a split), alarms of
`is_novel` at 5 % on test rows, and processor seconds: of the fit, of a fit without the clients' choices, and of the pooled regression (the
least of three turns). --out appends a line of JSON per split.

    python benchmarks/classifier_tables.py --summary FILE ...

prints a line per model and table from such files, over all seeds: log-losses, how many federations and clients are within bounds, and the
clients that are not.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import unpooled as up
from unpooled import baselines

Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # x, y, client of each row
Clients = dict[str, tuple[np.ndarray, np.ndarray]]
DATA = Path(os.environ.get("UNPOOLED_DATA", "../shared/data"))

MODELS: dict[str, Callable[[int], object]] = {
    "FedAvg": lambda seed: baselines.FedAvg(random_state=seed),
    "FedGMM": lambda seed: up.FedGMM(random_state=seed),
    "FedConceptEM": lambda seed: up.FedConceptEM(random_state=seed),
    "FedEM": lambda seed: baselines.FedEM(random_state=seed),
}


# ---- federations ----


def heart(rng: np.random.Generator) -> Table:
    import pandas as pd

    frame = pd.read_csv(DATA / "tables/heart_disease_4hospitals.csv.gz")
    frame.loc[frame.hospital == "switzerland", "chol"] = np.nan
    columns = frame.drop(columns=["hospital", "num"])
    missing = columns.isna().to_numpy()[:, columns.isna().mean().to_numpy() > 0.1]
    return np.c_[columns.to_numpy(float), missing], (frame.num > 0).to_numpy(int), frame.hospital.to_numpy(str)


def tcga(rng: np.random.Generator) -> Table:
    import pandas as pd

    frame = pd.read_csv(DATA / "tables/tcga_brca_6regions.csv.gz")
    x = frame.drop(columns=["pid", "E", "T", "tss", "region", "fold"]).to_numpy(float)
    return x, frame.E.to_numpy(int), frame.region.to_numpy(str)


def cnsim(rng: np.random.Generator) -> Table:
    import pandas as pd

    frame = pd.read_csv(DATA / "tables/cnsim_3studies.csv.gz")
    frame.columns = [c.strip() for c in frame.columns]
    frame = frame.dropna(subset=["DIS_DIAB"])
    x = frame.drop(columns=["DIS_DIAB", "study"]).apply(pd.to_numeric, errors="coerce").to_numpy(float)
    return x, frame.DIS_DIAB.to_numpy(int), frame.study.to_numpy(str)


def physionet(rng: np.random.Generator) -> Table:
    with np.load(DATA / "tables/physionet2012_hourly.npz") as stored:
        hours, static, y = stored["x_a"], stored["static_a"], stored["y_a"]
        names = [str(s) for s in stored["static_vars"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        means, last = np.nanmean(hours, 1), np.nanmax(hours, 1) - np.nanmin(hours, 1)
    unit = static[:, names.index("ICUType")].astype(int)
    rest = np.delete(static, names.index("ICUType"), 1)
    return np.c_[means, last, rest].astype(float), y.astype(int), unit.astype(str)


def fair(rng: np.random.Generator) -> Table:
    from statsmodels.datasets import fair as source

    frame = source.load_pandas().data
    x = frame.drop(columns=["affairs", "occupation"]).to_numpy(float)
    return x, (frame.affairs > 0).to_numpy(int), frame.occupation.astype(int).astype(str).to_numpy()


def anes(rng: np.random.Generator) -> Table:
    from statsmodels.datasets import anes96

    frame = anes96.load_pandas().data
    x = frame.drop(columns=["vote", "educ"]).to_numpy(float)
    return x, frame.vote.to_numpy(int), frame.educ.astype(int).astype(str).to_numpy()


def digits(rng: np.random.Generator) -> Table:
    x, y = load_digits(return_X_y=True)
    return x, y, _by_label(y, 8, rng)


def pendigits(rng: np.random.Generator) -> Table:
    x, y = _clustering("pendigits", 4000, rng)
    return x, y, KMeans(10, n_init=2, random_state=0).fit_predict(x).astype(str)


def satimage(rng: np.random.Generator) -> Table:
    x, y = _clustering("satimage", 4000, rng)
    return x, y, _by_label(y, 12, rng)


def emnist(rng: np.random.Generator) -> Table:
    """Ten letters, 7 x 7 means of pixels, clients that differ in labels; half of them see the image turned."""
    with np.load(DATA / "images/emnist_byclass_30k.npz") as stored:
        x, y = stored["x"], stored["y"].astype(int)
    x, y = x[(y >= 10) & (y < 20)], y[(y >= 10) & (y < 20)]
    by = _by_label(y, 10, rng)
    turned = by.astype(int) % 2 == 1
    x = np.where(turned[:, None, None], np.rot90(x, axes=(1, 2)), x)
    return x.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(len(x), 49), y, by


TABLES = {f.__name__: f for f in (heart, tcga, cnsim, physionet, fair, anes, digits, pendigits, satimage, emnist)}


def _clustering(name: str, most: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    with np.load(DATA / "tables/clustering.npz") as stored:
        x, y = stored[f"{name}__X"].astype(float), stored[f"{name}__y"].astype(int)
    some = rng.permutation(len(y))[:most]
    return x[some], y[some]


def _by_label(y: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Clients whose label shares are drawn from a Dirichlet distribution with 0.5."""
    shares = rng.dirichlet(np.full(clients, 0.5), int(y.max()) + 1)
    return np.array([str(rng.choice(clients, p=shares[label])) for label in y])


def split(table: Table, rng: np.random.Generator) -> tuple[Clients, Clients]:
    """(training rows, test rows) of each client of at least 20 rows."""
    x, y, by = table
    parts = {name: rng.permutation(np.flatnonzero(by == name)) for name in np.unique(by)}
    parts = {name: rows for name, rows in parts.items() if len(rows) >= 20}
    cut = {name: int(0.7 * len(rows)) for name, rows in parts.items()}
    known = np.concatenate([rows[: cut[name]] for name, rows in parts.items()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nan_to_num(np.nanmean(x[known], 0))
        scale = np.nan_to_num(np.nanstd(x[known], 0))
    varies = scale > 1e-9
    z = np.nan_to_num((x[:, varies] - mean[varies]) / scale[varies])
    train = {f"site {name}": (z[rows[: cut[name]]], y[rows[: cut[name]]]) for name, rows in parts.items()}
    test = {f"site {name}": (z[rows[cut[name] :]], y[rows[cut[name] :]]) for name, rows in parts.items()}
    return train, test


# ---- peers ----


def losses(proba: np.ndarray, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    place = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    chosen = np.where(classes[place] == y, proba[np.arange(len(y)), place], 1e-6)
    return -np.log(chosen.clip(min=1e-12))


def pooled(train: Clients, test: Clients) -> tuple[dict[str, float], float]:
    """(log-loss of each client, processor seconds) of a regression of all rows with a column per site."""
    names = list(train)
    site = np.eye(len(names))
    x = np.concatenate([np.c_[train[n][0], np.tile(site[i], (len(train[n][1]), 1))] for i, n in enumerate(names)])
    y = np.concatenate([train[n][1] for n in names])
    start = time.process_time()
    model = LogisticRegression(max_iter=5000).fit(x, y)
    seconds = time.process_time() - start
    found = {}
    for i, n in enumerate(names):
        rows = np.c_[test[n][0], np.tile(site[i], (len(test[n][1]), 1))]
        found[n] = float(losses(model.predict_proba(rows), model.classes_, test[n][1]).mean())
    return found, seconds


def alone(train: Clients, test: Clients) -> dict[str, float]:
    """Log-loss of each client's own regression."""
    classes = np.unique(np.concatenate([y for _, y in train.values()]))
    found = {}
    for name, (x, y) in train.items():
        spare = 0.5 / (len(y) + 0.5 * len(classes))
        proba = np.zeros((len(test[name][1]), len(classes)))
        if len(np.unique(y)) > 1:
            model = LogisticRegression(max_iter=5000).fit(x, y)
            proba[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(test[name][0])
        else:
            proba[:, np.searchsorted(classes, y[0])] = 1.0
        proba = (proba + spare) / (1 + spare * len(classes))
        found[name] = float(losses(proba, classes, test[name][1]).mean())
    return found


# ---- ours ----


def calibration_error(proba: np.ndarray, hit: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error of the most probable class."""
    top = proba.max(1)
    place = np.minimum((top * bins).astype(int), bins - 1)
    gaps = [abs((hit[place == b] - top[place == b]).sum()) for b in range(bins)]
    return float(sum(gaps) / len(top))


def chance_error(proba: np.ndarray, draws: int = 50) -> float:
    """The calibration error that probabilities which are exactly right have on as many rows, by chance alone."""
    rng = np.random.default_rng(0)
    top = proba.max(1)
    return float(np.mean([calibration_error(proba, rng.random(len(top)) < top) for _ in range(draws)]))


def fit_seconds(model: object, train: Clients) -> float:
    """Processor seconds of a fit."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train)
    return time.process_time() - start


def measure(model: object, train: Clients, test: Clients) -> dict:
    """What one model reaches."""
    seconds = fit_seconds(model, train)
    probas = {name: model.predict_proba(x, client=name) for name, (x, _) in test.items()}
    found = {name: float(losses(probas[name], model.classes_, test[name][1]).mean()) for name in test}
    proba = np.concatenate(list(probas.values()))
    y = np.concatenate([y for _, y in test.values()])
    error = calibration_error(proba, model.classes_[proba.argmax(1)] == y)
    rows = np.concatenate([x for x, _ in test.values()])
    alarms = float(model.is_novel(rows).mean()) if hasattr(model, "is_novel") else np.nan
    return {
        "losses": found,
        "ece": error,
        "chance": chance_error(proba),
        "alarms": alarms,
        "seconds": seconds,
        "rows": len(y),
    }


def timed(name: str, seed: int, train: Clients, test: Clients, turns: int = 3) -> dict[str, float]:
    """Processor seconds of a fit, of one without the clients' choices, and of the pooled regression: the least of some turns."""
    slow = name != "FedAvg"
    found: dict[str, list[float]] = {"seconds": [], "shared": [], "pooled": []}
    for _ in range(1 if slow else turns):
        found["pooled"].append(min(pooled(train, test)[1] for _ in range(turns if slow else 1)))
        found["shared"].append(fit_seconds(MODELS[name](seed).set_params(personalize="none"), train))
        found["seconds"].append(fit_seconds(MODELS[name](seed), train))
    return {key: min(values) for key, values in found.items()}


def results(table: str, name: str, seed: int, split_seed: int) -> dict:
    """One model on one split of one federation, beside its peers."""
    rng = np.random.default_rng(1000 + seed)
    federation = TABLES[table](rng)
    train, test = split(federation, np.random.default_rng([seed, split_seed]))
    together, apart = pooled(train, test)[0], alone(train, test)
    clients = {
        n: {"rows": len(train[n][1]), "test": len(test[n][1]), "pooled": together[n], "alone": apart[n]} for n in train
    }
    found = measure(MODELS[name](seed), train, test)
    for n, loss in found.pop("losses").items():
        clients[n]["ours"] = loss
    seconds = timed(name, seed, train, test) if split_seed == 0 else {}
    return found | seconds | {"table": table, "model": name, "seed": seed, "split": split_seed, "clients": clients}


HEAD = (
    "| table | model | log-loss | pooled + site | alone | to the better | worst client | within 5 % | ECE | by chance | test rows | alarms "
    "| s | shared s | pooled s |"
)


def line(rows: list[dict]) -> str:
    """A line of the table: one federation, means over splits."""
    first = rows[0]
    names = list(first["clients"])

    def mean(key: str, name: str) -> float:
        return float(np.mean([r["clients"][name][key] for r in rows]))

    ours, together, apart = (float(np.mean([mean(key, n) for n in names])) for key in ("ours", "pooled", "alone"))
    large = [n for n in names if first["clients"][n]["rows"] >= 50]
    worse = [mean("ours", n) / mean("alone", n) - 1 for n in large]
    cells = [f"{ours:.3f}", f"{together:.3f}", f"{apart:.3f}", f"{100 * (ours / min(together, apart) - 1):+.1f} %"]
    cells += [f"{100 * max(worse):+.0f} %", f"{sum(w <= 0.05 for w in worse)} of {len(worse)}"]
    cells += [f"{np.mean([r[key] for r in rows]):.3f}" for key in ("ece", "chance")] + [f"{first['rows']}"]
    alarms = np.mean([r["alarms"] for r in rows])
    cells.append("-" if np.isnan(alarms) else f"{100 * alarms:.1f} %")
    cells += [f"{r:.3f}" for r in (first.get(key, np.nan) for key in ("seconds", "shared", "pooled"))]
    return f"| {first['table']} | {first['model']} | {' | '.join(cells)} |"


def summary(files: list[Path]) -> None:
    """A line per model and table over all seeds and splits in the files."""
    rows = [json.loads(text) for file in files for text in file.read_text().splitlines()]
    print(
        "| model | table | fits | log-loss | pooled + site | alone | to the better | clients | ECE | alarms | not within 5 % |"
    )
    print("|" + 11 * "---|")
    for model, table in dict.fromkeys((row["model"], row["table"]) for row in rows):
        mine = [row for row in rows if (row["model"], row["table"]) == (model, table)]
        seeds = sorted({row["seed"] for row in mine})
        by_seed = {seed: _by_client([row for row in mine if row["seed"] == seed]) for seed in seeds}
        losses = np.mean([np.mean(list(found.values()), axis=0) for found in by_seed.values()], axis=0)
        enough = {(row["seed"], n) for row in mine for n, own in row["clients"].items() if own["rows"] >= 50}
        worse = {key: by_seed[key[0]][key[1]] for key in sorted(enough)}
        worse = {key: ours / alone - 1 for key, (ours, _, alone) in worse.items()}
        bad = [f"{name} (seed {seed}) {w:+.1%}" for (seed, name), w in worse.items() if w > 0.05]
        cells = [model, table, str(len(mine)), *(f"{loss:.3f}" for loss in losses)]
        cells += [f"{losses[0] / min(losses[1:]) - 1:+.1%}", f"{len(worse) - len(bad)} of {len(worse)}"]
        cells += [f"{np.mean([row[key] for row in mine]):.3f}" for key in ("ece", "alarms")] + [", ".join(bad)]
        print(f"| {' | '.join(cells)} |")


def _by_client(rows: list[dict]) -> dict[str, tuple[float, float, float]]:
    """Log-loss of each client, by ours, pooled and alone, in the mean over splits."""
    return {
        name: tuple(float(np.mean([row["clients"][name][key] for row in rows])) for key in ("ours", "pooled", "alone"))
        for name in rows[0]["clients"]
    }


def main(models: list[str], tables: list[str], seeds: list[int], splits: int, out: Path | None) -> None:
    print(HEAD + "\n|" + 15 * "---|")
    for table in tables:
        for seed in seeds:
            for name in models:
                rows = [results(table, name, seed, i) for i in range(splits)]
                print(line(rows), flush=True)
                if out is not None:
                    with out.open("a") as file:
                        file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="FedAvg,FedGMM")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--summary", type=Path, nargs="+", default=[], help="files of --out, to be summed up")
    given = parser.parse_args()
    if given.summary:
        raise SystemExit(summary(given.summary))
    seeds = [int(seed) for seed in given.seeds.split(",")]
    main(given.models.split(","), given.tables.split(","), seeds, given.splits, given.out)
