"""FedGMM on real tables: false alarms of its novelty thresholds, and what stopping by `tol` costs.

    python benchmarks/fedgmm_defaults.py

Tables of scikit-learn, split into clients with skewed labels; half of each client's rows are test rows.
Columns: alarms on test rows where 5 % are asked, with thresholds of the training densities and with leave-one-out
thresholds, of all clients together and of each client; then rounds, accuracy and log-loss by `tol`.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import log_loss

import unpooled as up

CLIENTS = 6
RATE = 0.05
TOLS = (0.0, 1e-5, 1e-4, 1e-3)
TABLES = {"breast cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}


def split(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[dict, dict]:
    """(train, test) rows by client; clients differ in their shares of labels."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(CLIENTS, 2.0), size=y.max() + 1)
    owner = np.array([rng.choice(CLIENTS, p=weights[label]) for label in y])
    train, test = {}, {}
    for c in range(CLIENTS):
        own = rng.permutation(np.flatnonzero(owner == c))
        half = len(own) // 2
        train[f"c{c}"], test[f"c{c}"] = (x[own[:half]], y[own[:half]]), (x[own[half:]], y[own[half:]])
    return train, test


def table(name: str, seed: int) -> tuple[dict, dict]:
    x, y = TABLES[name](return_X_y=True)
    if name == "digits":
        x = x[:, x.std(0) > 1]  # columns that are almost constant tell nothing
    return split((x - x.mean(0)) / x.std(0), y, seed)


def alarms(train: dict, test: dict, gaussians: int, seed: int) -> list[float]:
    model = up.FedGMM(
        gaussians,
        3,
        max_iter=15,
        reg_covar=1e-3,
        ridge=1e-6,
        novelty_rows="leave-one-out",
        personalize="none",
        random_state=seed,
    ).fit(train)
    rows, new = (np.concatenate([x for x, _ in part.values()]) for part in (train, test))
    by_training = (model.novelty(new) > np.quantile(model.novelty(rows), 1 - RATE)).mean()
    own_by_training = [
        (model.novelty(test[c][0], client=c) > np.quantile(model.novelty(train[c][0], client=c), 1 - RATE)).mean()
        for c in train
    ]
    own = [model.is_novel(x, RATE, client=c).mean() for c, (x, _) in test.items()]
    return [by_training, model.is_novel(new, RATE).mean(), np.mean(own_by_training), np.mean(own)]


def stopped(train: dict, test: dict, tol: float, seed: int) -> list[float]:
    model = up.FedGMM(3, 3, tol=tol, ridge=1e-6, reg_covar=1e-6, personalize="none", random_state=seed).fit(train)
    proba = np.concatenate([model.predict_proba(x, client=c) for c, (x, _) in test.items()])
    y = np.concatenate([y for _, y in test.values()])
    accuracy = (model.classes_[proba.argmax(1)] == y).mean()
    return [len(model.history_), accuracy, log_loss(y, proba, labels=model.classes_)]


def main() -> None:
    warnings.simplefilter("ignore")
    seeds = (0, 1, 2)
    print("false alarms, %      training  leave-one-out   per client: training  leave-one-out")
    for name in TABLES:
        for gaussians in (3, 20):
            rates = np.mean([alarms(*table(name, s), gaussians, s) for s in seeds], axis=0)
            print(f"{name:14} {gaussians:2}    " + "   ".join(f"{100 * r:10.1f}" for r in rates), flush=True)
    print("tol                     rounds   accuracy   log-loss")
    for name in TABLES:
        for tol in TOLS:
            rounds, accuracy, loss = np.mean([stopped(*table(name, s), tol, s) for s in seeds], axis=0)
            print(f"{name:14} {tol:7.0e}  {rounds:6.0f}   {accuracy:8.4f}   {loss:8.4f}", flush=True)


if __name__ == "__main__":
    main()
