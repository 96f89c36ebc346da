"""What the honest totals of a model tell about single people or single sites, in sentences for the review. Nothing is sent.

Masks hide whose number it is, not what a total says. Some models cannot do without sums that say much of few: these are named here, so
that whoever approves a study reads it in words and not only as a count of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Sentence = Callable[[Mapping[str, Any]], str]  # the model's parameters -> a sentence, or "" where it does not apply

ONE_SITE = "a group of sites that holds one site alone shows that site's own sums and model, masked or not"


def of(name: str, parameters: Mapping[str, Any]) -> list[str]:
    """What a model with these parameters tells about few."""
    return [text for sentence in SENTENCES.get(name, ()) if (text := sentence(parameters))]


def _quantiles(given: Mapping[str, Any]) -> str:
    """Each exact quantile is a person's value."""
    n = len(given["probabilities"]) if hasattr(given["probabilities"], "__len__") else 1
    return (
        f"{n} quantiles of each column (and of each group), to the last digit: each is one person's value, or lies between two; "
        "on the way counts of single people are seen"
    )


def _times(given: Mapping[str, Any]) -> str:
    """Times of death are found one by one, unless the study names steps."""
    if given["times"] is not None:
        return "how many people leave in each step of `times`, single people included, before steps of few are joined"
    return (
        "the exact time at which each person died or left, before steps of few are joined: give times= (or unit=) to have the "
        "coordinator count people in these steps alone"
    )


def _cox_times(given: Mapping[str, Any]) -> str:
    """The same for a Cox regression whose sites are not strata."""
    return "" if given["strata"] == "site" else _times(given)


def _scores(given: Mapping[str, Any]) -> str:
    """Concordance finds the distinct scores of all people."""
    applies = given["concordance"] and given["strata"] != "site"
    return (
        "each person's score (the fitted combination of the columns) is counted: concordance = false leaves it out"
        if applies
        else ""
    )


def _groups_of_sites(given: Mapping[str, Any]) -> str:
    """Sites are grouped, and a group may be a single site."""
    return ONE_SITE


def _histograms(given: Mapping[str, Any]) -> str:
    """Histograms of single columns."""
    robust = given.get("inputs") == "robust"
    return "a fine histogram of each column: the bin of a person with an unusual value is seen" if robust else ""


def _by_value(given: Mapping[str, Any]) -> str:
    """Sums by value of a column."""
    column = given.get("group_by")
    return "" if column is None else f"which values column {column!r} takes, and how many people have each"


def _densities(given: Mapping[str, Any]) -> str:
    """Histograms of log densities, and counts of pairs."""
    return "how likely the fitted mixture finds each row (a histogram of 4,000 bins), and the rows of each pair of Gaussian and learner"


def _hidden_cells(given: Mapping[str, Any]) -> str:
    """Errors on cells that were hidden."""
    return "sums of squared errors by column over hidden cells: in a column with few values they show how far these lie from its mean"


def _cells_of_a_table(given: Mapping[str, Any]) -> str:
    """Sums by site and by date."""
    return "sums for each number of a site and of a date: where one of them has a single visit, its value is seen"


SENTENCES: dict[str, tuple[Sentence, ...]] = {
    "Describe": (_quantiles,),
    "KaplanMeier": (_times,),
    "Cox": (_cox_times, _scores),
    "FedBNR": (_histograms, _by_value),
    "BayesianRegression": (_by_value,),
    "FedGMM": (_densities, _groups_of_sites),
    "FedConceptEM": (_groups_of_sites,),
    "Pooling": (_groups_of_sites,),
    "MixtureImputer": (_hidden_cells,),
    "FedMissEM": (_cells_of_a_table,),
    **dict.fromkeys(("IFCA", "FeSEM", "FedSoft"), (_groups_of_sites,)),
}
