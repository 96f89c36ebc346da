"""Candidates for what a client keeps of a fitted classifier, and the features that their corrections are linear in. Nothing is sent.

A candidate is a model as it is, a correction of one (see `corrections`), or a logistic regression of the client alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unpooled.learners.own_nets import ALONE_SHARES, STARTS, TEMPERATURES

SLOPES = (
    100.0,
    10.0,
    1.0,
    0.3,
)  # penalties of the slopes along a path, per standardised feature; before them there are none
OWN_INTERCEPT = 1.0  # penalty of the intercepts of a correction
FREE_INTERCEPT = 1e-2  # the same of a model of the client alone
RARE_LABELS = 0.1  # the same of label shares: a label that was not seen gets about half a row
HELD = 1e7  # penalty that holds a coefficient at 0
PRIOR = {"plain": 0.3, "corrected": 0.4, "tuned": 0.1, "alone": 0.2, "constant": 0.02}  # prior weights of the kinds
MAX_FEATURES = 128  # principal axes that take the place of more columns than that


class Candidates(NamedTuple):
    """How each candidate is made: an offset as it is, or with the corrections of a stage of a path."""

    kind: list[str]  # "plain", "tuned", "corrected", "alone" or "constant"
    which: np.ndarray  # (j,) offset: a base, a network, or the last one, zeros
    path: np.ndarray  # (j,) position of the path, -1 for an offset as it is
    stage: np.ndarray  # (j,) of the path


def candidates(bases: int, nets: int, alone: bool) -> Candidates:
    """The bases and the client's networks as they are, corrections of the bases, logistic regressions of the client alone, its
    label shares, and equal probabilities.

    Of the networks the first ones are fine-tuned, the last ones, STARTS after ALONE_SHARES at TEMPERATURES, trained alone. Path i
    corrects base i, the last path begins with nothing.
    """
    alone_nets, none = STARTS * len(ALONE_SHARES) * len(TEMPERATURES), bases + nets
    tuned = max(nets - alone_nets, 0)
    listed = [("plain", base, -1, 0) for base in range(bases)]
    listed += [("tuned" if i < tuned else "alone", bases + i, -1, 0) for i in range(nets)]
    stages = range(len(SLOPES) + 1)
    listed += [("corrected", base, base, stage) for base in range(bases) for stage in stages]
    listed += [("alone", none, bases, stage) for stage in stages[1:] if alone]
    listed += [("constant", none, bases, 0), ("constant", none, -1, 0)]
    kinds, *numbers = zip(*listed)
    return Candidates(list(kinds), *map(np.array, numbers))


def penalties(bases: int, features: int) -> np.ndarray:  # (stages, paths, r + 1)
    """The penalties of the paths: first of intercepts alone, then of weaker and weaker held slopes."""
    ridge = np.empty((len(SLOPES) + 1, bases + 1, features + 1))
    ridge[..., :-1] = np.array([HELD, *SLOPES])[:, None, None]
    ridge[..., :-1, -1] = OWN_INTERCEPT
    ridge[..., -1, -1] = FREE_INTERCEPT
    ridge[0, -1, -1] = RARE_LABELS
    return ridge


class Features(NamedTuple):
    """Standardised features of rows, their principal axes where there are many."""

    centre: np.ndarray  # (r,)
    scale: np.ndarray  # (r,)
    axes: np.ndarray  # (r, a), or (r, 0) for none

    def of(self, raw: np.ndarray) -> np.ndarray:  # (n, a + 1)
        """Standardised features on their axes, and a column of ones."""
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
