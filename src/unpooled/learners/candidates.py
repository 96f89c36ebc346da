"""Candidates for what a client keeps of a fitted classifier, and the features that their corrections are linear in. Nothing is sent.

A candidate is a model as it is, a correction of one (see `corrections`), or a logistic regression of the client alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.learners.own_nets import ALONE_SHARES

CORRECTIONS = (300.0, 100.0, 30.0, 10.0, 3.0)  # penalties of corrections of a model, per standardised feature
ALONE = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3)  # penalties of logistic regressions of the client alone
FREE_INTERCEPT = 1e-2  # penalty of their intercepts
OWN_INTERCEPT = 1.0  # penalty of the intercepts of a correction
HELD = 1e7  # penalty that holds a coefficient at 0
PRIOR = {
    "plain": 0.5,
    "corrected": 0.3,
    "tuned": 0.1,
    "alone": 0.1,
    "constant": 0.02,
}  # prior weights of the kinds of candidates
RARE_LABELS = 0.1  # penalty of the intercepts of a constant: a label that was not seen gets about half a row
MAX_FEATURES = 128  # principal axes that take the place of more columns than that


class Candidates(NamedTuple):
    """How each candidate is made of the rows' features."""

    kind: list[str]  # "plain", "tuned", "corrected", "alone" or "constant"
    which: np.ndarray  # (j,) offset: a base, or the last one, zeros
    ridge: np.ndarray  # (j, r + 1) penalties; those of plain candidates are not used

    @property
    def corrected(self) -> np.ndarray:
        """(j,) whether a candidate is a correction that has to be fitted."""
        return np.asarray((self.ridge < HELD).any(1))


def candidates(bases: int, features: int, nets: int, alone: bool) -> Candidates:
    """The bases and the client's networks as they are, corrections of the bases, logistic regressions of the client alone, its
    label shares, and equal probabilities.

    Of the networks the first ones are fine-tuned, the last len(ALONE_SHARES) trained alone.
    """
    tuned = max(nets - len(ALONE_SHARES), 0)
    held = np.full(features + 1, HELD)
    listed = [("plain", base, held) for base in range(bases)]
    listed += [("tuned" if i < tuned else "alone", bases + i, held) for i in range(nets)]
    for base in range(bases):
        for slopes in (HELD, *CORRECTIONS):
            listed.append(("corrected", base, np.append(np.full(features, slopes), OWN_INTERCEPT)))
    for slopes in ALONE if alone else ():
        listed.append(("alone", bases + nets, np.append(np.full(features, slopes), FREE_INTERCEPT)))
    listed.append(("constant", bases + nets, np.append(held[1:], RARE_LABELS)))
    listed.append(("constant", bases + nets, held))
    kinds, which, ridge = zip(*listed)
    return Candidates(list(kinds), np.array(which), np.array(ridge))


class Features(NamedTuple):
    """Standardised features of rows, their principal axes where there are many."""

    centre: np.ndarray  # (r,)
    scale: np.ndarray  # (r,)
    axes: np.ndarray  # (r, a), or (r, 0) for none

    def of(self, raw: np.ndarray) -> np.ndarray:  # (n, a + 1)
        z = (raw - self.centre) / self.scale
        z = z @ self.axes if self.axes.shape[1] else z
        return np.concatenate([z, np.ones((len(z), 1))], 1)


def features_of(raw: np.ndarray, w: np.ndarray) -> Features:
    """How the client's rows (n, r) are standardised."""
    share = w / w.sum()
    centre = share @ raw
    spread = np.sqrt(np.maximum(share @ (raw - centre) ** 2, 0.0))
    scale = np.where(spread > 1e-8 * (1 + np.abs(centre)), spread, 1.0)
    axes = np.zeros((raw.shape[1], 0))
    if raw.shape[1] > MAX_FEATURES:
        axes = np.linalg.svd((raw - centre) / scale, full_matrices=False)[2][:MAX_FEATURES].T
    return Features(centre, scale, axes)


def prior_weights(kinds: Sequence[str]) -> np.ndarray:
    """Prior weights of candidates: equal within a kind."""
    each = np.array([PRIOR[kind] / list(kinds).count(kind) for kind in kinds])
    return each / each.sum()
