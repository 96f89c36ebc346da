"""What a report shows of each kind of model: one file per kind with `sections(model, run)`, chosen by the model's class.

The files: `mixtures` (with `parts`, any mixture in one form), `classifiers`, `regressions`, `imputers`, `concepts`, `summaries` (Describe,
survival, PCA) and `measured` (errors by site, for several kinds). Your own model may define `report_figures()`, a dict of title to HTML.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from unpooled.report.folder import RunFolder
from unpooled.report.markup import Section

KINDS = {  # name of a class -> module of this package
    **dict.fromkeys(("GaussianMixture", "OpenMixture", "FedGEM", "FedEM", "VRFedEM", "MixedMixture"), "mixtures"),
    **dict.fromkeys(("MixtureImputer", "FedMissEM"), "imputers"),
    **dict.fromkeys(("FedGMM", "LogisticRegression"), "classifiers"),
    "FedConceptEM": "concepts",
    **dict.fromkeys(("GLM", "LinearRegression", "BayesianRegression", "FedBNR"), "regressions"),
    **dict.fromkeys(("Describe", "Cox", "KaplanMeier", "PCA"), "summaries"),
}


def sections(model: Any, run: RunFolder) -> list[Section]:
    """The sections of a fitted model, by its kind."""
    if model is None:
        return []
    kind = KINDS.get(type(model).__name__)
    if kind is None:
        return own_figures(model)
    return import_module(f"{__name__}.{kind}").sections(model, run)


def own_figures(model: Any) -> list[Section]:
    """What a model shows of itself."""
    made: dict[str, str] = getattr(model, "report_figures", dict)()
    return [Section(title, body) for title, body in made.items()]
