"""How much each mixture and each regression counts, from sums over hidden cells. Nothing is sent."""

from __future__ import annotations

import numpy as np

from unpooled.models.mixture_imputer import stacking
from unpooled.models.mixture_imputer import state as states
from unpooled.models.mixture_imputer.state import CHOSEN, JUDGED, State


def judged(state: State, gram: np.ndarray, held: np.ndarray, automatic: bool) -> State:
    """The state after the hidden cells have been looked at: shares known, mixtures that do not count dropped.

    Parameters
    ----------
    state : State
        With mixtures and regressions fitted without the hidden cells.
    gram : ndarray of shape (2, d, c, c)
        Sums of products of two candidates' errors over the hidden cells of either half of the rows: mixtures first, then regressions.
    held : ndarray of shape (2, d)
        How many cells these are.
    automatic : bool
        Whether several mixtures may count; if not, the best of them stands for all.
    """
    n = len(state.candidates)
    usable = _usable(state, gram, automatic)
    of_levels = np.isin(np.arange(len(state.kinds)), states.layout(state).discrete)
    found = _supported_shares(state, gram, held, usable, of_levels)
    kept = _kept(state, found[:, :n])
    both = np.append(kept, np.arange(n, gram.shape[-1]))
    other = gram[::-1][:, :, both[:, None], both], held[::-1]
    crossed = np.stack([_shares(*half, usable[:, both], of_levels) for half in zip(*other)])
    if len(kept) > 1:
        crossed = crossed * 1.0
    tried = tuple(state.candidates[i]._replace(settled=False, loglik=-np.inf) for i in kept)
    errors = np.sqrt(np.einsum("hjcc->c", gram[..., :n, :n]) / max(held.sum(), 1e-300))
    return state._replace(
        candidates=tried,
        stage=JUDGED if held.sum() else CHOSEN,
        rounds=0,
        shares=found[:, kept],
        crossed=crossed[:, :, : len(kept)],
        level_shares=found[:, n:],
        errors=errors,
    )


def _supported_shares(state: State, gram: np.ndarray, held: np.ndarray, usable: np.ndarray, of_levels: np.ndarray) -> np.ndarray:
    """Shares (d, c), in columns of numbers shrunk to those of single Gaussians as far as halves of the rows do not support more.

    Shares found on either half are judged on the other: of all points between single Gaussians alone and all mixtures, the best.
    """
    found = _shares(gram.sum(0), held.sum(0), usable, of_levels)
    n = len(state.candidates)
    ones = np.array([len(c.params.weights) == 1 for c in state.candidates] + [False] * (gram.shape[-1] - n))
    if not ones.any() or ones[:n].all() or not usable[:, ones].any() or of_levels.all() or not held.sum():
        return found
    single = usable & ones
    slope = curvature = 0.0
    numbers = np.flatnonzero(~of_levels)
    for half in (0, 1):
        base, full = (_shares(gram[half], held[half], some, of_levels)[numbers] for some in (single | (usable & of_levels[:, None]), usable))
        away, own = full - base, gram[1 - half][numbers]
        slope -= np.einsum("jc,jcd,jd->", base, own, away)
        curvature += np.einsum("jc,jcd,jd->", away, own, away)
    reach = float(np.clip(slope / max(curvature, 1e-300), 0.0, 1.0))
    alone = _shares(gram.sum(0), held.sum(0), single | (usable & of_levels[:, None]), of_levels)
    found[numbers] = alone[numbers] + reach * (found[numbers] - alone[numbers])
    return found


def _usable(state: State, gram: np.ndarray, automatic: bool) -> np.ndarray:
    """Which candidates each column has, (d, c): all mixtures or the best, and regressions where the column has some."""
    n, c = len(state.candidates), gram.shape[-1]
    usable = np.zeros((len(state.kinds), c), bool)
    best = int(np.argmin(np.einsum("hjcc->c", gram[..., :n, :n])))
    usable[:, : n if automatic else 0] = True
    usable[:, best] = True
    having = sorted({regression.column for regression in state.regressions})
    usable[having, n:] = True
    return usable


def _shares(gram: np.ndarray, held: np.ndarray, usable: np.ndarray, of_levels: np.ndarray) -> np.ndarray:
    """Shares (d, c); of the first candidate that a column has where there are no hidden cells at all."""
    if held.sum():
        return stacking.shares(gram, held, usable, of_levels)
    return np.eye(usable.shape[1])[usable.argmax(1)]


def _kept(state: State, shares: np.ndarray) -> np.ndarray:
    """The mixtures that count somewhere, by how much, and one Gaussian in any case: the others are anchored to it."""
    kept = np.flatnonzero(shares.max(0) > 0)
    ones = [i for i, c in enumerate(state.candidates) if len(c.params.weights) == 1]
    if ones and not set(ones) & set(kept):
        kept = np.union1d(kept, ones[:1])
    if not len(kept):
        kept = np.array([states.single(state)])
    return kept[np.argsort(-shares[:, kept].mean(0), kind="stable")].astype(int)
