"""Cox's partial likelihood from sums by time step, with Efron's or Breslow's handling of ties. Sends nothing.

There are g time steps, d covariates z and coefficients b. With r_i = exp(z_i'b), s0 and s1 are the sums of r and r z
over the rows at risk in a step, d0 and d1 the same over the rows that die in it. Among the n deaths of a step, death l
has the denominator s0 - (l / n) d0 (Efron) or s0 (Breslow).

References
----------
Efron, The efficiency of Cox's likelihood function for censored data, JASA 1977.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LARGEST = 300.0  # bound of linear predictors, so that sums stay finite when a step was too long


class Deaths(NamedTuple):
    """Number and total weight of the deaths in each of g steps."""

    number: np.ndarray  # (g,)
    weight: np.ndarray  # (g,)


class Sums(NamedTuple):
    """Sums of r and r z by step, over the rows that leave the risk set in the step.

    In steps with ties, also over those of them that die.
    """

    r: np.ndarray  # (g,)
    rz: np.ndarray  # (g, d)
    died_r: np.ndarray  # (q,), one for each step of two deaths or more
    died_rz: np.ndarray  # (q, d)


class Terms(NamedTuple):
    """The part of the log-likelihood and its derivatives that depends on risk sets."""

    loglik: float
    gradient: np.ndarray  # (d,)
    outer: np.ndarray  # (d, d) sum of the products of mean covariates
    hazard: np.ndarray  # (g,) weight of a row at risk in the step in the second derivative
    relief: np.ndarray  # (g,) what is subtracted from it for a row that dies in the step
    mean: np.ndarray  # (g, d) mean covariates of a death in the step
    hazard_mean: np.ndarray  # (g, d) hazard times mean covariates, and
    relief_mean: np.ndarray  # (g, d) relief times mean covariates: for robust standard errors


def tied(deaths: Deaths, ties: str) -> np.ndarray:
    """The steps whose deaths need separate sums: those with two or more for Efron, none for Breslow."""
    return np.flatnonzero(deaths.number > 1.5) if ties == "efron" else np.zeros(0, dtype=np.int64)


def terms(deaths: Deaths, sums: Sums, ties: str) -> Terms:
    """Log-likelihood terms of all deaths."""
    at_risk = sums.r[::-1].cumsum()[::-1]  # (g,)
    at_risk_z = sums.rz[::-1].cumsum(0)[::-1]  # (g, d)
    n = np.rint(deaths.number).astype(np.int64)
    step = np.repeat(np.arange(len(n)), n)  # (e,) one entry for each death
    share = _shares(n) if ties == "efron" else np.zeros(len(step))
    weight = np.repeat(deaths.weight / np.maximum(n, 1), n)
    died_r, died_rz = _scattered(sums, tied(deaths, ties))
    denominator = at_risk[step] - share * died_r[step]
    mean = (at_risk_z[step] - share[:, None] * died_rz[step]) / denominator[:, None]
    hazard = weight / denominator
    relief = weight * share / denominator
    weighted = weight[:, None] * mean

    def by_step(a: np.ndarray) -> np.ndarray:
        return _by_step(a, step, len(n))

    return Terms(
        -float((weight * np.log(denominator)).sum()),
        -weighted.sum(0),
        weighted.T @ mean,
        by_step(hazard),
        by_step(relief),
        by_step(weighted) / np.maximum(deaths.weight, 1e-300)[:, None],
        by_step(hazard[:, None] * mean),
        by_step(relief[:, None] * mean),
    )


def _shares(n: np.ndarray) -> np.ndarray:
    """0, 1/n, ..., (n - 1)/n for each step of n deaths, one after the other."""
    starts = np.repeat(n.cumsum() - n, n)
    return (np.arange(n.sum()) - starts) / np.repeat(n, n)


def _scattered(sums: Sums, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums over deaths for every step, (g,) and (g, d); 0 where a step has no ties."""
    r = np.zeros(len(sums.r))
    rz = np.zeros(sums.rz.shape)
    r[where] = sums.died_r
    rz[where] = sums.died_rz
    return r, rz


def _by_step(a: np.ndarray, step: np.ndarray, g: int) -> np.ndarray:
    """Entries of `a` (e, ...) added up by step."""
    out = np.zeros((g, *a.shape[1:]))
    np.add.at(out, step, a)
    return out


# ---- contributions of rows ----


def last_step(starts: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The last step in which each row is at risk, (n,).

    For a row that dies it is the step of its death; -1 for a row that leaves before the first step.
    """
    return np.searchsorted(starts, time, side="right") - 1


def risk(z: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """exp(z'b) of rows z (n, d): (n,)."""
    return np.exp(np.clip(z @ coef, -LARGEST, LARGEST))


def sums(z: np.ndarray, wr: np.ndarray, step: np.ndarray, died: np.ndarray, where: np.ndarray, g: int) -> Sums:
    """`Sums` of rows z (n, d) with weight times risk wr (n,), last steps (n,) and deaths (n,) bool.

    `where` are the steps with ties, `g` is the number of steps.
    """
    place = np.full(g, -1)
    place[where] = np.arange(len(where))
    at_risk = step >= 0
    both = at_risk & died
    both[both] = place[step[both]] >= 0
    r, rz = _binned(z[at_risk], wr[at_risk], step[at_risk], g)
    died_r, died_rz = _binned(z[both], wr[both], place[step[both]], len(where))
    return Sums(r, rz, died_r, died_rz)


def _binned(z: np.ndarray, wr: np.ndarray, bins: np.ndarray, g: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of wr and of wr z by bin; (g,) and (g, d)."""
    columns = [wr] + [wr * z[:, j] for j in range(z.shape[1])]
    sums = [np.bincount(bins, column, g)[:g] for column in columns]
    binned = np.stack(sums, 1).astype(np.float64)  # (g, 1 + d)
    return binned[:, 0], binned[:, 1:]


def curvature_weights(cumulated: np.ndarray, relief: np.ndarray, step: np.ndarray, died: np.ndarray) -> np.ndarray:
    """The weight of r_i z_i z_i' in the second derivative, (n,), given the cumulated hazard (g,) and relief (g,)."""
    at_risk = step >= 0
    out = np.zeros(len(step))
    out[at_risk] = cumulated[step[at_risk]] - np.where(died[at_risk], relief[step[at_risk]], 0.0)
    return out
