"""Where the owners of lasting names live today.

A question or a message type is called "room.thing". The name travels, and stands in saved files, policies and ledgers; the file that
defines it may move. When it does, one line of this table changes and nothing else.
"""

from __future__ import annotations

from importlib import import_module

HOMES = {  # room -> the module whose import registers all its names
    "estimator": "unpooled.estimator",
    "tables": "unpooled.data.designed",
    "learners": "unpooled.learners",
    "run": "unpooled.runs",
    "afcl": "unpooled.baselines.afcl",
    "apfl": "unpooled.baselines.apfl",
    "centres": "unpooled.baselines.centres",
    "clustered": "unpooled.baselines.clustered",
    "exact_gp": "unpooled.baselines.exact_gp",
    "fedavg": "unpooled.baselines.fedavg",
    "fedavg_plus": "unpooled.baselines.fedavg_plus",
    "fedem_learners": "unpooled.baselines.fedem",
    "federated_kmeans": "unpooled.baselines.federated_kmeans",
    "fedloc": "unpooled.baselines.fedloc",
    "fedsoft": "unpooled.baselines.fedsoft",
    "fesem": "unpooled.baselines.fesem",
    "ffcm": "unpooled.baselines.ffcm",
    "ifca": "unpooled.baselines.ifca",
    "kfed": "unpooled.baselines.kfed",
    "local_em": "unpooled.baselines.local_em",
    "local_only": "unpooled.baselines.local",
    "network_regression": "unpooled.baselines.regression",
    "pfedgp": "unpooled.baselines.pfedgp",
    "pfedme": "unpooled.baselines.pfedme",
    "compressed": "unpooled.layers.compression",
    "faults": "unpooled.layers.faults",
    "folds": "unpooled.layers.folds",
    "secure": "unpooled.layers.secure",
    "looks": "unpooled.layers.private",
    "maths.bayes_linear": "unpooled.maths.bayes_linear",
    "maths.descent": "unpooled.maths.descent",
    "maths.feature_maps": "unpooled.maths.feature_maps",
    "maths.fitc": "unpooled.maths.fitc",
    "maths.imputation": "unpooled.maths.imputation",
    "maths.local_mixture": "unpooled.maths.local_mixture",
    "maths.missing": "unpooled.maths.missing",
    "maths.mixture": "unpooled.maths.mixture",
    "maths.patterns": "unpooled.maths.patterns",
    "maths.searching": "unpooled.maths.searching",
    "maths.shapes": "unpooled.maths.shapes",
    "families.base": "unpooled.models.fedem.families.base",
    "families.bernoulli": "unpooled.models.fedem.families.bernoulli",
    "families.categorical": "unpooled.models.fedem.families.categorical",
    "families.columns": "unpooled.models.fedem.families.columns",
    "families.common": "unpooled.models.fedem.families.common",
    "families.factor": "unpooled.models.fedem.families.factor",
    "families.gaussian": "unpooled.models.fedem.families.gaussian",
    "families.lowrank": "unpooled.models.fedem.families.lowrank",
    "families.poisson": "unpooled.models.fedem.families.poisson",
    "families.regression": "unpooled.models.fedem.families.regression",
    "describe": "unpooled.models.describe",
    "fedbnr": "unpooled.models.fedbnr",
    "fedconceptem": "unpooled.models.fedconceptem",
    "fedem": "unpooled.models.fedem",
    "fedgem": "unpooled.models.fedgem",
    "fedgmm": "unpooled.models.fedgmm",
    "fedmissem": "unpooled.models.fedmissem",
    "glm": "unpooled.models.glm",
    "initialization": "unpooled.models.initialization",
    "mixed": "unpooled.models.mixed",
    "mixture": "unpooled.models.mixture",
    "mixture_imputer": "unpooled.models.mixture_imputer",
    "open_mixture": "unpooled.models.open_mixture",
    "pca": "unpooled.models.pca",
    "pooling": "unpooled.models.pooling",
    "private": "unpooled.models.private",
    "regression": "unpooled.models.regression",
    "survival": "unpooled.models.survival",
}
# room -> a module that a fit imports only if an option asks for it
OPTIONAL = {"mixture": "unpooled.models.mixture.race"}


def room_of(name: str) -> str:
    """The part of a lasting name before the last dot: "mixture" of "mixture.e_step"."""
    return name.rpartition(".")[0]


def import_home(name: str) -> None:
    """Import the modules that register `name`, if it is one of ours; no other module is ever imported for a name."""
    room = room_of(name)
    for module in (HOMES.get(room), OPTIONAL.get(room)):
        if module is not None:
            import_module(module)
