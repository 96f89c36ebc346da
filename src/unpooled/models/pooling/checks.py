"""What `Pooling` refuses, in one sentence: before any round, and after the first totals. Nothing is sent."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.data.checks import without_labels
from unpooled.errors import BadData, BadParameter
from unpooled.federation import Federation, is_masked
from unpooled.maths.gaussian import unpack_triangle
from unpooled.models.column_names import called, where_missing
from unpooled.models.pooling import homogeneity
from unpooled.models.pooling.questions import Look, Shift

VALUES = {"binomial": "from 0 to 1", "poisson": "counts 0, 1, 2, ...", "normal": "numbers"}


def check_sites(fed: Federation, by_site: bool) -> None:
    """Refuse one site, and numbers by site from sums that are masked."""
    if len(fed.names) < 2:
        raise BadParameter("there is only one site, so that there is nothing to compare: give two or more")
    if by_site and is_masked(fed):
        raise BadParameter(
            "sites=True asks for each site's own numbers, which masked sums are to hide: use sites=False"
        )


def check_targets(fed: Federation) -> None:
    """Refuse targets that are no numbers, of the clients in this process."""
    for c in fed.here():
        if c.y is None:
            raise without_labels(c.name, "targets")
        y = to_numpy(c.y)
        if y.dtype.kind not in "fiub" or y.ndim != 1:
            raise BadData(
                f"client {c.name!r} has targets that are not one number per row: give numeric y, 0 and 1 for two classes"
            )


def check_look(first: Look, family: str, missing: str, fed: Federation) -> None:
    """Refuse missing values, targets outside the family, and too few rows or sites."""
    if first.missing > 0 and missing == "refuse":
        raise BadData(
            f"{first.missing:g} rows have missing values{where_missing(fed)}: use missing='drop' to leave them out, or fill them in first "
            "with MixtureImputer"
        )
    if first.outside > 0:
        raise BadData(
            f"{first.outside:g} targets are not {VALUES[family]}, as family={family!r} needs them: correct them or choose "
            "another family"
        )
    if first.sites < 2:
        raise BadData("fewer than two sites have complete rows: there is nothing to compare")
    if first.n <= len(first.x) + 2:
        raise BadData(f"{first.n:g} rows cannot tell {len(first.x) + 1} coefficients: use fewer columns")


def check_varies(sd: np.ndarray, mean: np.ndarray, y_sd: float, y_mean: float, names: list[str]) -> None:
    """Refuse constant columns and a constant target."""
    constant = sd <= 1e-12 * np.abs(mean)
    if constant.any():
        has, it = ("has", "it") if constant.sum() == 1 else ("have", "them")
        raise BadData(f"{called(names, np.flatnonzero(constant))} {has} the same value in every row: leave {it} out")
    if not y_sd > 1e-12 * abs(y_mean):
        raise BadData(f"all targets are {float(y_mean):g}: there is nothing to learn from one outcome")


def check_independent(shift: Shift, names: list[str]) -> None:
    """Refuse a column that is a combination of others."""
    p = len(names)
    total = unpack_triangle(np.asarray(shift.x.xx))[:p, :p]
    lost = np.setdiff1d(np.arange(p), homogeneity.independent(total))
    if len(lost):
        one = len(lost) == 1
        text = "is a combination of the columns before it" if one else "are combinations of the columns before them"
        raise BadData(f"{called(names, lost)} {text}: leave {'it' if one else 'them'} out")
