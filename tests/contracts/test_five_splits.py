"""Figure of the documents: the same rows split in five ways give the same model to 1e-8, each fit from its own start.

Models that weigh, cluster or personalise by client depend on the split by construction and are not here: OpenMixture, FedGEM, FedGMM,
FedConceptEM, Pooling, cohorts (`fraction < 1`), and every option that names sites.
"""

import numpy as np
import pytest
from estimators import ESTIMATORS, SURVIVAL, survival
from test_estimator import assert_close, joined

import unpooled as up
from unpooled.data.federate import federate

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RNG = np.random.default_rng(11)


def contract_rows(name):
    """All rows of a case of the contracts as one table, or rows and labels."""
    return joined(list(ESTIMATORS[name].data().values()))


def gaps():
    x = RNG.normal(size=(60, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
    return np.where(RNG.random(x.shape) < 0.15, np.nan, x)


def visits():
    cells = np.argwhere(RNG.random((12, 6)) < 0.8)
    return np.column_stack([cells, RNG.poisson(np.exp(1 + 0.1 * cells.sum(1)))]).astype(float)


CASES = {
    "MixtureImputer": (lambda: up.MixtureImputer(n_components=[1, 2], prior=3.0, choose_iter=3, max_iter=6), gaps()),
    "FedMissEM": (lambda: up.FedMissEM(None, "poisson", n_folds=2, choose_iter=4, max_iter=16), visits()),
    "FedMissEM of rank 1": (lambda: up.FedMissEM(1, "poisson", penalty=1.0, max_iter=12), visits()),
    "BayesianRegression": (lambda: up.BayesianRegression(random_state=0), contract_rows("GLM normal")),
    "MixedMixture": (ESTIMATORS["MixedMixture"].make, contract_rows("MixedMixture")),
    "PCA": (lambda: up.PCA(2, random_state=0), contract_rows("PCA")),
    "GLM": (ESTIMATORS["GLM negative binomial"].make, contract_rows("GLM negative binomial")),
    "LinearRegression": (lambda: up.LinearRegression(), contract_rows("GLM normal")),
    "LogisticRegression": (lambda: up.LogisticRegression(random_state=0), contract_rows("LogisticRegression")),
    "Cox": (lambda: up.Cox(**SURVIVAL, random_state=0), joined(list(survival().values()))),
    "KaplanMeier": (ESTIMATORS["KaplanMeier"].make, contract_rows("KaplanMeier")),
    "Describe": (ESTIMATORS["Describe"].make, contract_rows("Describe")),
}


def five_splits(rows):
    """Clients by name: all together, halves, in turn, by a column's order, and of very unequal sizes."""
    parts = rows if isinstance(rows, tuple) else (rows,)
    n = len(parts[0])
    index = np.arange(n)
    order = np.argsort(parts[0][:, 0], kind="stable")
    splits = [[index], np.array_split(index, 2), [index[i::7] for i in range(7)], np.array_split(order, 4)]
    splits.append([index[: n // 10], index[n // 10 : n // 8], index[n // 8 :]])
    for split in splits:
        yield {
            f"c{i}": rows[some] if isinstance(rows, np.ndarray) else tuple(a[some] for a in rows)
            for i, some in enumerate(split)
        }


SLOW = ("MixedMixture",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_five_splits_give_one_model(name):
    make, rows = CASES[name]
    fits = [make().fit(federate(clients, mode="one by one")) for clients in five_splits(rows)]
    for other in fits[1:]:
        assert_close(other, fits[0], rtol=1e-8)
