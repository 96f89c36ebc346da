"""What a GLM refuses, before any round and after the first totals. Nothing is sent."""

from __future__ import annotations

from typing import Any

from unpooled.arrays import to_numpy
from unpooled.data.checks import without_labels
from unpooled.errors import BadData, BadParameter, suggest
from unpooled.federation import Federation
from unpooled.models.column_names import where_missing
from unpooled.models.glm.families import FAMILIES
from unpooled.models.glm.questions import Look
from unpooled.parameters import at_least

LEAST_ALPHA = 1e-5  # of alpha times the mean of y: below it a negative binomial is practically a Poisson distribution


def check_numeric_targets(fed: Federation) -> None:
    """Refuse targets that are not one number per row, for clients in this process."""
    for c in fed.here():
        if c.y is None:
            raise without_labels(c.name, "targets")
        y = to_numpy(c.y)
        text = f"client {c.name!r} has targets that are not one number per row"
        if y.ndim != 1:
            raise BadData(f"{text} ({y.dtype} of shape {y.shape}): give a vector, such as y.ravel()")
        if y.dtype.kind not in "fiub":
            remedy = "give numeric y (0 and 1 for two outcomes), or use LogisticRegression"
            raise BadData(f"{text} (such as {str(y[0])!r}): {remedy}")


def offset_index(offset: str | int | None, columns: list[str] | None) -> int:
    """Which column is the offset, -1 for none."""
    if offset is None:
        return -1
    if isinstance(offset, str):
        if texts := [c for c in columns or () if c.startswith(f"{offset}=")]:
            raise BadParameter(
                f"offset={offset!r} is a column of texts ({', '.join(texts[:3])}): an offset is a number"
            )
        if offset not in (columns or ()):
            raise BadParameter(f"offset={offset!r} is not a column: {suggest(offset, columns or ())}")
        return list(columns or ()).index(offset)
    at_least("offset", offset, 0)
    return int(offset)


def check_seen(model: Any, seen: Look, q: int, fed: Federation) -> None:
    """Refuse targets outside the family's range, fewer rows than the q coefficients need, and targets that are all the same."""
    family = model.family
    n = float(seen.n)
    y = float(seen.y)
    if seen.missing > 0 and model.missing == "refuse":
        text = f"{seen.missing:g} rows have missing values{where_missing(fed)}: use missing='drop' to leave them out"
        raise BadData(f"{text}, or fill them in first with MixtureImputer")
    if n <= 0:
        raise BadData("no client has a row without missing values: fill them in first with MixtureImputer")
    if seen.outside > 0:
        text = f"{seen.outside:g} targets are not {FAMILIES[family].values}, as family={family!r} needs them"
        raise BadData(f"{text}: correct them or choose another family")
    if n <= q and model.alpha == 0:
        raise BadData(f"{n:g} rows cannot tell {q} coefficients: use fewer columns, or set alpha= for a ridge penalty")
    if family == "binomial" and y >= n:
        raise BadData("all targets are 1: there is nothing to learn from one outcome")
    if family in ("binomial", "poisson", "negative_binomial") and y <= 0:
        raise BadData("all targets are 0: there is nothing to learn from one outcome")
    if family == "normal" and model._link != "identity" and y <= 0:
        raise BadData(f"the mean of y is not above 0, as link={model._link!r} needs it: use link='identity'")


def check_alpha(alpha: float, seen: Look) -> None:
    """Refuse a negative binomial that is practically a Poisson distribution."""
    if alpha * float(seen.y / seen.n) < LEAST_ALPHA:
        raise BadData(
            "y varies no more than a Poisson law, so that the negative binomial's alpha is 0: use family='poisson', or give "
            "nb_alpha="
        )
