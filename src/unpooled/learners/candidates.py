"""Candidates for what a client keeps of a fitted classifier, and the columns that their corrections are linear in. Nothing is sent.

A candidate is a model as it is, a correction of one (see `corrections`), or a logistic regression of the client alone.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from unpooled.learners.own_nets import ALONE_SHARES, STARTS, TEMPERATURES

# penalties of the slopes of corrections, per standardised feature; before them there are none
CORRECTED = (30.0, 3.0, 0.5)
ALONE = (10.0, 3.0, 0.7)  # the same of a model of the client alone
OWN_INTERCEPT = 0.1  # penalty of the intercepts of a correction
RARE_LABELS = 0.1  # the same of a model of the client alone: a label that was not seen gets about half a row
PRIOR = {"plain": 0.35, "corrected": 0.4, "alone": 0.15, "constant": 0.02}  # prior weights of the kinds
# The same where there are networks: corrections are then fitted to the rows held out, which are few, and look too good there.
PRIOR_OF_NETS = {"plain": 0.35, "corrected": 0.05, "tuned": 0.3, "alone": 0.3, "constant": 0.02}
CELLS = 40_000  # numbers in a block of rows
FEW_AXES, MOST_AXES, ROWS_PER_AXIS = 40, 128, 8  # principal axes that take the place of more columns


class Candidates(NamedTuple):
    """How each candidate is made: an offset as it is, or with the corrections of a stage of a path."""

    kind: np.ndarray  # (j,) "plain", "tuned", "corrected", "alone" or "constant"
    offset: np.ndarray  # (j,) position: a base, a network, or the last one, zeros
    path: np.ndarray  # (j,) position of the path, -1 for an offset as it is
    stage: np.ndarray  # (j,) of the path

    prior: np.ndarray  # (j,) weights; within a kind equal, but for networks at higher temperatures


@cache
def candidates(bases: int, nets: int, alone: bool) -> Candidates:
    """The bases and the client's networks as they are, corrections of the bases, logistic regressions of the client alone, its
    label shares, and equal probabilities.

    Of the networks the first ones are the bases with the client's label shares, the next ones fine-tuned, the last ones, STARTS after
    ALONE_SHARES, trained alone; all but the first at TEMPERATURES. Path i corrects base i, the last path begins with nothing.
    """
    alone_nets = STARTS * len(ALONE_SHARES) * len(TEMPERATURES)
    none = bases + nets
    tuned = max(nets - alone_nets, 0)
    listed = [("plain", base, -1, 0) for base in range(bases)]
    listed += [("tuned" if i < tuned else "alone", bases + i, -1, 0) for i in range(nets)]
    stages = range(len(CORRECTED) + 1)
    listed += [("corrected", base, base, stage) for base in range(bases) for stage in stages]
    listed += [("alone", none, bases, stage) for stage in stages[1:] if alone]
    listed += [("constant", none, bases, 0), ("constant", none, -1, 0)]
    kinds, offset, path, stage = map(np.array, zip(*listed))
    within = np.ones(len(kinds))
    within[2 * bases : none] = np.resize(1 / np.array(TEMPERATURES), max(nets - bases, 0))
    return Candidates(kinds, offset, path, stage, _prior(kinds, within, PRIOR_OF_NETS if nets else PRIOR))


def _prior(kinds: np.ndarray, within: np.ndarray, weights: dict[str, float]) -> np.ndarray:  # (j,)
    """The weights of the kinds, divided by `within` (j,) among the candidates of each."""
    prior = np.zeros(len(kinds))
    for kind in np.unique(kinds):
        which = kinds == kind
        prior[which] = weights[kind] * within[which] / within[which].sum()
    return prior / prior.sum()


def penalties(bases: int, features: int) -> np.ndarray:  # (stages, paths, r + 1)
    """The penalties of the paths: first of intercepts alone, then of weaker and weaker held slopes."""
    ridge = np.zeros((len(CORRECTED) + 1, bases + 1, features + 1))
    ridge[1:, :-1, :-1] = np.array(CORRECTED)[:, None, None]
    ridge[1:, -1, :-1] = np.array(ALONE)[:, None]
    ridge[:, :-1, -1] = OWN_INTERCEPT
    ridge[:, -1, -1] = RARE_LABELS
    return ridge


class Axes(NamedTuple):
    """Directions of standardised features: one per feature or, where there are many, principal axes."""

    centre: np.ndarray  # (..., r)
    axes: np.ndarray  # (..., r, a)

    def columns(self, raw: np.ndarray, dtype: type = np.float64) -> np.ndarray:  # (..., n, a + 1)
        """Features (..., n, r) along the axes, and a column of ones; each column is contiguous in memory."""
        by_column: np.ndarray = np.ones((*raw.shape[:-2], self.axes.shape[-1] + 1, raw.shape[-2]), dtype)
        found = np.swapaxes(by_column, -1, -2)
        scaled = self.axes.shape[-1] == self.axes.shape[-2]  # one axis per feature; principal axes are fewer
        axes = np.diagonal(self.axes, axis1=-2, axis2=-1)[..., None, :] if scaled else self.axes.astype(dtype)
        centre = self.centre[..., None, :]
        n = raw.shape[-2]
        step = max(1, CELLS * n // max(raw.size, 1))
        for start in range(0, n, step):  # blocks stay in the processor's cache
            some = (..., slice(start, start + step), slice(None))
            centred = raw[some] - centre
            found[..., :-1][some] = centred * axes if scaled else centred.astype(dtype, copy=False) @ axes
        return found


def count_axes(rows: int, features: int) -> int:
    """How many axes a client of so many rows has."""
    return min(features, int(np.clip(rows // ROWS_PER_AXIS, FEW_AXES, MOST_AXES)))


def axes_of(raw: np.ndarray, w: np.ndarray, least: np.ndarray | float = 0.0, count: int | None = None) -> Axes:
    """`count` axes of a client's rows (n, r), whose columns are scaled by their deviations or by `least` (r,), if that is more; or those
    of several clients on leading axes.
    """
    share = w / w.sum(-1, keepdims=True)
    centre = (share[..., None, :] @ raw)[..., 0, :]
    spread = np.maximum(np.sqrt(_variances(raw, share, centre)), least)
    scale = np.where(spread > 1e-8 * (1 + np.abs(centre)), spread, 1.0)
    most = count_axes(*raw.shape[-2:]) if count is None else count
    if raw.shape[-1] <= most:
        return Axes(centre, np.eye(raw.shape[-1]) / scale[..., None])
    z = raw - centre[..., None, :]
    z /= scale[..., None, :]
    z *= np.sqrt(share)[..., None]
    _, directions = np.linalg.eigh(np.swapaxes(z, -1, -2) @ z)
    return Axes(centre, directions[..., : -most - 1 : -1] / scale[..., None])


def _variances(raw: np.ndarray, share: np.ndarray, centre: np.ndarray) -> np.ndarray:  # (..., r)
    """Variances of columns (..., n, r) about a centre (..., r), from the shares (..., n) of the rows."""
    total = np.zeros_like(centre)
    n = raw.shape[-2]
    step = max(1, CELLS * n // max(raw.size, 1))
    for start in range(0, n, step):  # blocks stay in the processor's cache
        some = slice(start, start + step)
        squares = raw[..., some, :] - centre[..., None, :]
        np.square(squares, out=squares)
        total += (share[..., None, some] @ squares)[..., 0, :]
    return total
