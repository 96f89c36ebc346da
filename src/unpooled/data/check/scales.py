"""Units and scales: a factor between sites' quantiles that a change of unit explains, or values far from all others.

Pure functions of profiles, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

FACTORS = {  # the larger number over the smaller -> what it usually means
    2.54: "centimetres and inches",
    30.48: "centimetres and feet",
    3.2808: "feet and metres",
    100.0: "percent and fraction, or metres and centimetres",
    1000.0: "a prefix of 1000, such as grams and milligrams",
    10.0: "a prefix of 10, such as g/L and g/dL",
    38.67: "mg/dL and mmol/L of cholesterol",
    18.02: "mg/dL and mmol/L of glucose",
    88.57: "mg/dL and mmol/L of triglycerides, or umol/L and mg/dL of creatinine (88.42)",
    6.006: "mg/dL and mmol/L of urea",
    2.2046: "pounds and kilograms",
    7.5006: "mmHg and kPa",
    14.504: "psi and bar",
    1.9438: "knots and m/s",
    3.6: "km/h and m/s",
    25.4: "millimetres and inches",
    12.0: "months and years",
    365.25: "days and years",
    60.0: "minutes and hours, or seconds and minutes",
    24.0: "hours and days",
    4.184: "kJ and kcal",
}
KELVIN = 273.15  # Kelvin less degrees Celsius
NEAR = 0.15  # largest relative distance of a ratio of medians from a factor: patients differ between sites too
NEAR_QUARTILES = 0.25
APART = 2.5  # standard deviations, in logarithms, between medians that a factor may explain
TWICE = 2.0  # positive numbers whose medians differ by less are of one scale
FAR = 6.0  # standard deviations beyond which values are of another scale, explained by a factor or not
EXACT = 0.1  # how near quartiles must be to a factor, and those of the other sites to each other, where values overlap
AMONG = 5.0  # standard deviations of sites' medians: hardly any site is farther from the middle one by chance
SEVERAL = 8  # sites, at least, from which the variation of medians is estimated
# of the five quantiles that must be near where not all quartiles are: the median between two groups moves easily
MOST = 4


def middle_site(quantiles: Mapping[str, list[float]]) -> str:
    """The site whose median is the middle one of all; the first of two."""
    if len(quantiles) == 2:
        return next(iter(quantiles))
    order = sorted(quantiles, key=lambda site: (quantiles[site][2], site))
    return order[(len(order) - 1) // 2]


class Between(NamedTuple):
    """How much the medians of sites differ: a standard deviation, by quartiles, so that a few odd sites do not count."""

    plain: float = 0.0
    log: float = 0.0


def between_sites(quantiles: list[list[float]]) -> Between:
    """The differences between sites' medians, of numbers and of their logarithms; 0 for few sites, where one may spoil them."""
    if len(quantiles) < SEVERAL:
        return Between()
    medians = np.array([q[2] for q in quantiles])
    return Between(_deviation(medians), _deviation(np.log(medians)) if (medians > 0).all() else 0.0)


def _deviation(values: np.ndarray) -> float:
    """Standard deviation by the distance of the quartiles."""
    low, high = np.quantile(values, [0.25, 0.75])
    return float(high - low) / 1.35


def alike(site: list[float], others: list[list[float]]) -> bool:
    """Whether a site's numbers have about the level and the spread of the others'.

    >>> alike([-1.6, -0.7, 0.0, 0.7, 1.6], [[-1.5, -0.6, 0.1, 0.7, 1.7], [-1.7, -0.8, -0.1, 0.6, 1.5]])
    True
    """
    usual = np.median(np.array(others), axis=0)
    spread = usual[3] - usual[1]
    own = site[3] - site[1]
    return bool(spread < TWICE * own and own < TWICE * spread and abs(site[2] - usual[2]) < spread)


def difference(site: list[float], others: list[float], between: Between | None = None) -> str:
    """What is odd about a site's numbers beside others', by their quantiles; nothing if they may be alike.

    `between` says how much medians of sites differ: what is usual among them needs no other unit.

    >>> difference([62.0, 65.0, 67.0, 69.0, 72.0], [157.0, 165.0, 170.0, 175.0, 183.0])
    'its values are 2.54 times smaller (centimetres and inches?)'
    """
    a = np.asarray(site)
    b = np.asarray(others)
    if (a[3] <= a[1] and b[3] <= b[1]) or _usual(a, b, between or Between()):
        return ""
    if degrees := _fahrenheit(a, b) or _kelvin(a, b):
        return degrees
    if a[1] > 0 and b[1] > 0:
        apart = max(_apart(np.log(np.maximum(a, 1e-300)), np.log(np.maximum(b, 1e-300))), _apart(a, b))
        factor = _factor(a, b)
        if factor is not None and apart > APART:
            return _said(factor, a, b)
        if max(a[2] / b[2], b[2] / a[2]) < TWICE:
            return ""
    else:
        apart = _apart(a, b)
    if apart > FAR:
        return f"its values are on another scale: median {a[2]:.6g} instead of {b[2]:.6g}"
    return ""


def multiple(site: list[float], others: list[list[float]]) -> str:
    """A factor between a site and at least two others that agree closely, although their ranges overlap; nothing if there is none.

    >>> multiple([3.1, 5.8, 7.8, 10.1, 15.0], [[1.6, 3.0, 4.0, 5.2, 7.8], [1.6, 3.1, 4.1, 5.3, 7.7]])
    'its values are 1.9438 times larger (knots and m/s?)'
    """
    quantiles = np.array([site, *others])
    if len(others) < 2 or (quantiles[:, 1] <= 0).any():
        return ""
    logs = np.log(np.maximum(quantiles, 1e-300))
    usual = np.median(logs[1:], axis=0)
    alike = (abs(logs[1:] - usual) <= np.log1p(EXACT)).all(0)  # (5,)
    if not (alike[1:4].all() or alike.sum() >= MOST):
        return ""
    which = np.arange(1, 4) if alike[1:4].all() else np.flatnonzero(alike)
    ratios = np.exp(logs[0] - usual)[which]
    ratios = ratios if ratios[0] > 1 else 1 / ratios
    factor = min(FACTORS, key=lambda f: abs(np.log(ratios / f)).max())
    if (abs(np.log(ratios / factor)) > np.log1p(EXACT)).any():
        return ""
    return _said(factor, quantiles[0], np.exp(usual))


def _usual(a: np.ndarray, b: np.ndarray, between: Between) -> bool:
    """Whether two medians differ by no more than those of sites do."""
    if a[2] > 0 and b[2] > 0 and between.log > 0:
        return bool(abs(np.log(a[2] / b[2])) < AMONG * between.log)
    return bool(abs(a[2] - b[2]) < AMONG * between.plain)


def _said(factor: float, a: np.ndarray, b: np.ndarray) -> str:
    times = "smaller" if a[1] < b[1] else "larger"
    return f"its values are {factor:g} times {times} ({FACTORS[factor]}?)"


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    """Standard deviations between two medians, by the larger of the two spreads."""
    spread = max(a[3] - a[1], b[3] - b[1]) / 1.35
    return float(abs(a[2] - b[2]) / max(spread, 1e-12))


def _factor(a: np.ndarray, b: np.ndarray) -> float | None:
    """The factor nearest to the ratio of the medians, if it explains all three quartiles."""
    small, large = (a, b) if a[2] < b[2] else (b, a)
    ratios = large[1:4] / small[1:4]
    distances = {factor: abs(np.log(ratios[1] / factor)) for factor in FACTORS}
    factor = min(distances, key=lambda f: distances[f])
    explains_median = distances[factor] <= np.log1p(NEAR)
    explains_quartiles = (abs(np.log(ratios / factor)) <= np.log1p(NEAR_QUARTILES)).all()
    return factor if explains_median and explains_quartiles else None


def _fahrenheit(a: np.ndarray, b: np.ndarray) -> str:
    """Temperatures in Fahrenheit beside Celsius: all three quartiles by 1.8 x + 32."""
    for cold, hot, text in (
        (a, b, "Celsius where others have Fahrenheit"),
        (b, a, "Fahrenheit where others have Celsius"),
    ):
        apart = _apart(cold, hot)
        shifted = 1.8 * cold[1:4] + 32
        if apart > APART and (abs(shifted - hot[1:4]) <= 0.03 * abs(hot[1:4])).all() and -60 < cold[2] < 60:
            return f"its values look like degrees {text}"
    return ""


def _kelvin(a: np.ndarray, b: np.ndarray) -> str:
    """Temperatures in Kelvin beside Celsius: all three quartiles are moved by 273.15, give or take a tenth of it."""
    moved = (a - b)[1:4]
    if _apart(a, b) < APART or (abs(abs(moved) - KELVIN) > 0.1 * KELVIN).any():
        return ""
    return f"its values look like {'Kelvin' if moved[1] > 0 else 'degrees Celsius'} where others have the other"
