"""Fit, over data that cannot be pooled, the model you would have fitted on the pooled data.

    import unpooled as up
    up.GaussianMixture(n_components=3).fit({"cleveland": X1, "budapest": X2, "zurich": X3})

Names are imported when first used, so that `import unpooled` is fast, and torch and Flower are loaded only when needed.

The files beside this one are the core. Read them in this order:

- `client` (a participant and the questions it can be asked), `federation` (SUM, GATHER and TELL over clients), `local` and `jobs`
  (all clients in this process), `estimator` (the loop of a fit)
- `arrays` and `tree` (the values that are exchanged, and their checks), `wire` and `store` (as bytes, and on disk)
- `runs`, `config`, `study`, `summary`, `saving`, `progress`, `certificate` (a fit that lasts: its folder, its file, its proof)
- `checking` (a check of tables before a fit), `export` (to scikit-learn and JSON), `choices`, `parameters`, `names`, `errors` (helpers),
  `cli` (the command)

The packages: `models` and `baselines` (algorithms), `learners` (the classifiers that some train), `maths` (pure functions), `data`
(tables to clients), `layers` (compression, masks, noise), `secure` and `privacy` (what masks and noise need), `validation` and `metrics`,
`remote` and `flower` (networks), `node` (a site), `report`, `pages` and `commands` (what people see), `datasets` (experiments).
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "federate": "unpooled.data.federate",
    "check": "unpooled.checking",
    "Local": "unpooled.local",
    "load": "unpooled.saving",
    "Metered": "unpooled.layers.meter",
    "Faults": "unpooled.layers.faults",
    "Compressed": "unpooled.layers.compression",
    "Private": "unpooled.layers.private",
    "SecureSum": "unpooled.layers.secure",
    "GaussianMixture": "unpooled.models.mixture",
    "MixedMixture": "unpooled.models.mixed",
    "FedEM": "unpooled.models.fedem",
    "VRFedEM": "unpooled.models.fedem",
    "FedMissEM": "unpooled.models.fedmissem",
    "MixtureImputer": "unpooled.models.mixture_imputer",
    "FedGMM": "unpooled.models.fedgmm",
    "FedGEM": "unpooled.models.fedgem",
    "OpenMixture": "unpooled.models.open_mixture",
    "BayesianRegression": "unpooled.models.regression",
    "FedBNR": "unpooled.models.fedbnr",
    "FedConceptEM": "unpooled.models.fedconceptem",
    "GLM": "unpooled.models.glm",
    "LinearRegression": "unpooled.models.glm",
    "LogisticRegression": "unpooled.models.glm",
    "cross_validate": "unpooled.validation",
    "compare": "unpooled.validation",
    "Describe": "unpooled.models.describe",
    "Cox": "unpooled.models.survival",
    "KaplanMeier": "unpooled.models.survival",
    "PCA": "unpooled.models.pca",
    "Pooling": "unpooled.models.pooling",
}

MODELS = tuple(name for name, where in _PUBLIC.items() if where.startswith("unpooled.models."))

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import unpooled` stays light."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name == "baselines":
        return import_module("unpooled.baselines")
    raise AttributeError(f"module 'unpooled' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
