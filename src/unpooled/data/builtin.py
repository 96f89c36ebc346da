"""Small data sets that need no file and no network: scikit-learn's own, and a synthetic table of six hospitals."""

from __future__ import annotations

import numpy as np

from unpooled.data import partition
from unpooled.data.synthetic import missing
from unpooled.data.tables import Collection, numbered
from unpooled.errors import BadParameter, suggest

SKLEARN = ("iris", "wine", "digits", "breast_cancer", "diabetes")
NAMES = ("hospitals", *SKLEARN)


def load(name: str, *, clients: int = 5, alpha: float = 1.0) -> Collection:
    """A built-in data set by name, the same on every call; `clients` and `alpha` control how scikit-learn's sets are
    split.

    The rows of each class are divided by Dirichlet(alpha) shares; a regression set is divided into sizes from
    Dirichlet(alpha).

    >>> load("iris", clients=3).columns[0]
    'sepal length (cm)'
    """
    if name == "hospitals":
        return hospitals()
    if name not in SKLEARN:
        raise BadParameter(f"there is no built-in data set {name!r}: {suggest(name, NAMES)}")
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    varies = np.ptp(bunch.data, axis=0) > 0  # three pixels of the digits are constant
    x = bunch.data[:, varies]
    y = bunch.target
    if name == "diabetes":
        owner = partition.quantity_skew(len(y), clients, alpha=alpha, min_rows=2, random_state=0)
    else:
        owner = partition.dirichlet(y, clients, alpha, min_rows=2, random_state=0)
    columns = [str(c) for c, keep in zip(bunch.feature_names, varies) if keep]
    return _by_owner(x, y, columns, owner, numbered(clients))


def _by_owner(x: np.ndarray, y: np.ndarray, columns: list[str], owner: np.ndarray, names: list[str]) -> Collection:
    """One client per name, with the rows whose entry in `owner` is the place of that name."""
    by_client = {}
    labels = {}
    for i, name in enumerate(names):
        by_client[name] = x[owner == i]
        labels[name] = y[owner == i]
    return Collection(by_client, columns, labels)


# ---- hospitals: synthetic patients ----

COLUMNS = ["age", "bmi", "systolic", "diastolic", "heart_rate", "cholesterol", "hdl", "glucose"]
DECIMALS = (0, 1, 0, 0, 0, 0, 0, 0)
SPREAD = (9.0, 3.5, 12.0, 8.0, 9.0, 30.0, 10.0, 14.0)  # standard deviations within a group of patients
GROUPS = np.array(  # three kinds of patients: check-up, metabolic, cardiac
    [
        [44, 24.0, 121, 77, 70, 190, 57, 91],
        [56, 32.5, 137, 86, 77, 221, 42, 148],
        [69, 27.0, 157, 84, 86, 243, 47, 106],
    ]
)
RELATED = {(0, 2): 0.3, (1, 6): -0.4, (1, 7): 0.35, (2, 3): 0.65, (3, 4): 0.2, (5, 6): -0.15}  # correlations

# name: rows, share of each group, years older, share missing, columns that are rarely measured there
SITES: dict[str, tuple[int, tuple[float, float, float], float, float, tuple[str, ...]]] = {
    "ashford": (420, (0.55, 0.30, 0.15), 0.0, 0.06, ()),
    "birchwood": (310, (0.20, 0.60, 0.20), -2.0, 0.07, ("heart_rate",)),
    "cedar-clinic": (90, (0.75, 0.20, 0.05), -6.0, 0.05, ("cholesterol", "hdl")),
    "dunmore": (260, (0.15, 0.25, 0.60), 3.0, 0.10, ()),
    "eastgate": (560, (0.40, 0.35, 0.25), 1.0, 0.08, ("hdl",)),
    "fairview": (160, (0.30, 0.20, 0.50), 4.0, 0.12, ("glucose",)),
}


def hospitals() -> Collection:
    """1,800 synthetic patients of six hospitals with different case mixes and different missing values.

    `y` is 1 for a patient with a cardiac event later on.
    """
    rng = np.random.default_rng(2024)
    x, y = {}, {}
    for site, (n, shares, older, share, rare) in SITES.items():
        x[site], y[site] = _patients(n, shares, older, rng)
        x[site] = missing(x[site], share, rng=rng)
        for column in rare:
            x[site][rng.random(n) < 0.9, COLUMNS.index(column)] = np.nan
    return Collection(x, list(COLUMNS), y)


def _patients(n: int, shares: tuple, older: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw `n` patients from three groups mixed by `shares`, `older` years above them, and whether each had an event."""
    correlation = np.eye(len(COLUMNS))
    for (i, j), r in RELATED.items():
        correlation[i, j] = correlation[j, i] = r
    root = np.linalg.cholesky(correlation)
    x = GROUPS[rng.choice(3, n, p=shares)] + rng.standard_normal((n, len(COLUMNS))) @ root.T * SPREAD
    x[:, 0] = np.clip(x[:, 0] + older, 18, 99)
    by_age = 0.05 * (x[:, 0] - 60)
    by_pressure = 0.025 * (x[:, 2] - 135)
    by_cholesterol = 0.008 * (x[:, 5] - 210)
    by_glucose = 0.01 * (x[:, 7] - 100)
    risk = -2.2 + by_age + by_pressure + by_cholesterol + by_glucose  # log odds of an event
    event = rng.random(n) < 1 / (1 + np.exp(-risk))
    rounded = np.stack([np.round(column, places) for column, places in zip(x.T, DECIMALS)], axis=1)
    return rounded, event.astype(np.int64)
