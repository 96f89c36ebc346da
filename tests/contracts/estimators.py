"""Every estimator that must obey the laws: a new model joins by adding one line.

A case is (make an estimator, make its data, laws it obeys beyond those of all).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import unpooled as up
from unpooled import baselines
from unpooled.baselines.fedloc import FedLoc
from unpooled.baselines.pfedgp import PFedGP
from unpooled.baselines.regression import FedAvgRegression, FedProxRegression
from unpooled.data import synthetic
from unpooled.datasets import classification


class Case(NamedTuple):
    make: Callable[[], Any]
    data: Callable[[], dict[str, Any]]  # clients by name: X, or (X, y)
    exact: bool = False  # the split of rows into clients does not matter
    monotone: bool = False  # history_ has a loglik that rises every round
    variant: bool = False  # other settings of a model above whose fit takes long: only laws that these can break


def mixture_data(missing: float = 0.0) -> dict[str, np.ndarray]:
    return synthetic.mixture(400, 3, 3, separation=2.5, clients=7, missing=missing, random_state=3).clients


def gm(**options: Any) -> Callable[[], Any]:
    """With a quick start; the default one, which takes ten times as long as all rounds, is one case."""
    quick = {"init_params": "k-means++"}
    settings = {"n_components": 3, "random_state": 0, "max_iter": 12, "tol": 0.0, **quick, **options}
    return lambda: up.GaussianMixture(**settings)


def clustering(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(up if name in dir(up) else baselines, name)(random_state=0, **options)


def holes() -> dict[str, np.ndarray]:
    return mixture_data(0.2)


def labelled() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return classification.paper(clients=6, rows=80, d=4, spread=2.0, random_state=3).train


def trained(name: str, **options: Any) -> Callable[[], Any]:
    settings = {"random_state": 0, "max_iter": 10, "batch_size": 16, "lr": 0.05, **options}
    return lambda: getattr(baselines if name in dir(baselines) else up, name)(**settings)


def regression_data() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(5)
    x = rng.uniform(-2, 2, size=(300, 3))
    y = 7 + np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * rng.normal(size=300)
    return {f"c{c}": (x[c::7], y[c::7]) for c in range(7)}


def bnr(kernel: str = "exact", **options: Any) -> Callable[[], Any]:
    settings = {"n_frequencies": 8, "max_iter": 8, "random_state": 0, **options}
    return lambda: up.FedBNR(kernel, **settings)


def network(make: type, **options: Any) -> Callable[[], Any]:
    settings = {"hidden": (6,), "latent_dim": 3, "local_epochs": 2, "max_iter": 8, "patience": 9, "random_state": 0}
    return lambda: make(**settings, **options)


def counts() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    data = regression_data()
    return {
        name: (x, np.floor(np.maximum(y - 5, 0)) + (np.arange(len(y)) % 7 == 0) * 4.0) for name, (x, y) in data.items()
    }


def glm(family: str, **options: Any) -> Callable[[], Any]:
    return lambda: up.GLM(family, max_iter=12, tol=0.0, **options)


def table() -> dict[str, np.ndarray]:
    """Whole numbers, decimals, levels and missing values."""
    rng = np.random.default_rng(7)
    levels = rng.integers(0, 3, 240)
    x = np.column_stack([rng.normal(50, 9, 240).round(), rng.lognormal(0, 2, 240), rng.normal(size=240), levels])
    x[:, 1:3][rng.random((240, 2)) < 0.15] = np.nan
    return {f"c{c}": x[c::6] for c in range(6)}


def two_kinds() -> dict[str, np.ndarray]:
    """A number and a category of the table, for a start that takes a third of the time."""
    return {name: x[:, [0, 3]] for name, x in table().items()}


def few_rows() -> dict[str, np.ndarray]:
    return synthetic.mixture(160, 2, 2, separation=4.0, clients=4, random_state=3).clients


def survival() -> dict[str, np.ndarray]:
    """Three covariates, a group, times in whole days and events."""
    rng = np.random.default_rng(8)
    x = np.column_stack([rng.normal(size=(240, 3)), rng.integers(0, 3, 240)])
    time = np.ceil(40 * rng.exponential(np.exp(-x[:, :3] @ [0.5, -0.7, 0.2])))
    censored = rng.integers(1, 90, 240)
    x = np.column_stack([x, np.minimum(time, censored), time <= censored])
    return {f"c{c}": x[c::6] for c in range(6)}


FOUR_KINDS = ["real", "positive", "real", "category"]


def mixed(**options: Any) -> Callable[[], Any]:
    settings = {"n_components": 2, "kinds": ["real", "category"], "random_state": 0, "max_iter": 12, "tol": 0.0}
    return lambda: up.MixedMixture(**(settings | options))


SURVIVAL = {"duration": 4, "event": 5}
FEDEM = {"name": "gaussian", "n_components": 3}


ESTIMATORS = {
    "GaussianMixture": Case(gm(init_params="cells"), mixture_data, exact=True, monotone=True),
    "GaussianMixture full": Case(gm(), mixture_data, exact=True, monotone=True),
    "GaussianMixture tied": Case(gm(covariance_type="tied"), mixture_data, exact=True, monotone=True),
    "GaussianMixture diag": Case(gm(covariance_type="diag"), mixture_data, exact=True, monotone=True),
    "GaussianMixture spherical": Case(gm(covariance_type="spherical"), mixture_data, exact=True, monotone=True),
    "GaussianMixture missing": Case(gm(), holes, exact=True, monotone=True),
    "GaussianMixture accelerated": Case(gm(accelerate=True), mixture_data, exact=True, monotone=True),
    "GaussianMixture candidates": Case(gm(n_components=[1, 2, 4], n_init=2), mixture_data, exact=True),
    "GaussianMixture personal": Case(gm(personal_weights=True), mixture_data, monotone=True),
    "GaussianMixture cohort": Case(gm(fraction=0.5), mixture_data),
    "MixedMixture": Case(mixed(), two_kinds, exact=True, monotone=True),
    "MixedMixture of four kinds": Case(mixed(n_components=3, kinds=FOUR_KINDS), table, True, True, variant=True),
    "MixedMixture accelerated": Case(mixed(accelerate=True), two_kinds, exact=True, monotone=True, variant=True),
    "MixedMixture candidates": Case(mixed(n_components=[1, 2], n_init=2), two_kinds, exact=True, variant=True),
    "MixedMixture personal": Case(mixed(personal_weights=True), two_kinds, monotone=True, variant=True),
    "OpenMixture": Case(clustering("OpenMixture", structure="topics", max_local=3), few_rows),
    "OpenMixture gaussians": Case(
        clustering("OpenMixture", structure="gaussians", max_local=3), few_rows, variant=True
    ),
    "FedGEM": Case(clustering("FedGEM", n_components=3, tol=0.0, max_iter=9), mixture_data),
    "FederatedKMeans": Case(clustering("FederatedKMeans", n_clusters=3, tol=0.0, max_iter=9), mixture_data),
    "FedGMM": Case(trained("FedGMM"), labelled),
    "FedGMM sgd": Case(trained("FedGMM", optimizer="sgd", fraction=0.7, trial=3), labelled),
    "FedGMM mlp": Case(trained("FedGMM", learner="mlp", hidden=(8,), embedding=2), labelled),
    "FedAvg": Case(trained("FedAvg", keep_momentum=True, schedule="cosine"), labelled),
    "FedProx": Case(trained("FedProx", learner="mlp", hidden=(8,)), labelled),
    "FedAvgPlus": Case(trained("FedAvgPlus"), labelled),
    "ClusteredFL": Case(trained("ClusteredFL", eps1=1.0, eps2=0.1), labelled),
    "LocalOnly": Case(trained("LocalOnly"), labelled),
    "PFedMe": Case(trained("PFedMe", fraction=0.5), labelled),
    "FedEM of learners": Case(trained("FedEM", local_epochs=2), labelled),
    "FedEM": Case(lambda: up.FedEM(FEDEM, levels=3, fraction=0.6, max_iter=10, tol=0, random_state=0), mixture_data),
    "VRFedEM": Case(lambda: up.VRFedEM(FEDEM, batch_size=8, max_iter=10, tol=0, random_state=0), mixture_data),
    "FedConceptEM": Case(trained("FedConceptEM", n_concepts=2, extra=1, patience=1, settle=0.5, noise=1.0), labelled),
    "FedConceptEM adam": Case(
        trained("FedConceptEM", n_concepts=2, extra=1, adam=True, fraction=0.7, fine_tune=1), labelled
    ),
    "IFCA": Case(trained("IFCA", n_clusters=2), labelled),
    "FeSEM": Case(trained("FeSEM", n_clusters=2), labelled),
    "FedSoft": Case(trained("FedSoft", n_clusters=2, fraction=0.7), labelled),
    "APFL": Case(trained("APFL"), labelled),
    "Describe": Case(lambda: up.Describe(by=3, random_state=0), table, exact=True),
    "Describe all": Case(lambda: up.Describe(min_count=1, method="hazen", random_state=0), table, exact=True),
    "Describe sites": Case(lambda: up.Describe(sites=True, random_state=0), table),
    "PCA": Case(lambda: up.PCA(2, random_state=0), mixture_data, exact=True),
    "Pooling": Case(lambda: up.Pooling(random_state=0, em_rounds=4, cv=2), regression_data),
    "PCA randomized": Case(
        lambda: up.PCA(1, solver="randomized", n_oversamples=0, max_iter=4, tol=0.0, random_state=0),
        mixture_data,
        exact=True,
    ),
    "Cox": Case(lambda: up.Cox(**SURVIVAL, random_state=0), survival, exact=True, monotone=True),
    "Cox joined": Case(lambda: up.Cox(**SURVIVAL, min_count=5, unit=3, random_state=0), survival, exact=True),
    "Cox by site": Case(lambda: up.Cox(**SURVIVAL, strata="site", robust="site", random_state=0), survival),
    "KaplanMeier": Case(lambda: up.KaplanMeier(**SURVIVAL, by=3, min_count=2, random_state=0), survival, exact=True),
    "FedBNR by default": Case(lambda: up.FedBNR(random_state=0), regression_data),
    "FedBNR exact": Case(bnr(), regression_data),
    "FedBNR average": Case(bnr("average", local_epochs=2), regression_data),
    "FedAvgRegression": Case(network(FedAvgRegression), regression_data),
    "FedProxRegression": Case(network(FedProxRegression), regression_data),
    "PFedGP": Case(network(PFedGP, n_inducing=5), regression_data),
    "FedLoc": Case(lambda: FedLoc(100.0, n_inducing=10, max_iter=8, tol=0.0), regression_data),
    "GLM normal": Case(glm("normal"), regression_data, exact=True),
    "GLM gamma": Case(glm("gamma"), regression_data, exact=True),
    "GLM poisson": Case(glm("poisson", offset=2, cov_type="HC0"), counts, exact=True),
    "GLM negative binomial": Case(glm("negative_binomial"), counts, exact=True),
    "GLM elastic net": Case(glm("poisson", alpha=0.05, l1_ratio=0.5), counts, exact=True),
    "GLM by site": Case(glm("normal", cov_type="site"), regression_data),
    "LogisticRegression": Case(lambda: up.LogisticRegression(max_iter=9, tol=0.0), labelled, exact=True),
    "LogisticRegression l1": Case(
        lambda: up.LogisticRegression("l1", C=0.1, max_iter=9, tol=0.0), labelled, exact=True
    ),
}
