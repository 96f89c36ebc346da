"""How much each mixture and each regression counts, from sums over hidden cells. Nothing is sent."""

from __future__ import annotations

import numpy as np

from unpooled.models.mixture_imputer import checked, stacking
from unpooled.models.mixture_imputer import state as states
from unpooled.models.mixture_imputer.candidates import is_anchor
from unpooled.models.mixture_imputer.state import CHOSEN, JUDGED, State


def judged(state: State, gram: np.ndarray, held: np.ndarray, automatic: bool) -> State:
    """The state after the hidden cells have been looked at: shares known, mixtures that do not count dropped.

    Parameters
    ----------
    state : State
        With mixtures and regressions fitted without the hidden cells.
    gram : ndarray of shape (2, d, 1 + c, 1 + c)
        Sums of products of two errors over the hidden cells of either half of the rows: of the means of columns of numbers, then of
        mixtures, then of regressions.
    held : ndarray of shape (2, d)
        How many cells these are.
    automatic : bool
        Whether several mixtures may count; if not, the best of them stands for all.
    """
    n = len(state.candidates)
    with_mean = gram.sum(0)
    gram = gram[:, :, 1:, 1:]
    of_levels = np.isin(np.arange(len(state.kinds)), states.layout(state).discrete)
    usable = _usable(state, gram, automatic)
    alone = _without_mixtures(state, usable, of_levels)
    reach = _reach(gram, held, alone, usable, of_levels)
    found = _shrunk(gram.sum(0), held.sum(0), alone, usable, of_levels, reach)
    kept = _kept(state, found[:, :n])
    both = np.append(kept, np.arange(n, gram.shape[-1]))
    sums = gram[:, :, both[:, None], both]
    crossed = [_shrunk(sums[h], held[h], alone[:, both], usable[:, both], of_levels, reach) for h in (1, 0)]
    tried = tuple(state.candidates[i]._replace(settled=False, loglik=-np.inf, path=()) for i in kept)
    errors = np.sqrt(np.einsum("hjcc->c", gram[..., :n, :n]) / max(held.sum(), 1e-300))
    return state._replace(
        candidates=tried,
        stage=JUDGED if held.sum() else CHOSEN,
        rounds=0,
        shares=found[:, kept],
        crossed=np.stack(crossed)[:, :, : len(kept)],
        level_shares=found[:, n:],
        checked=checked.checks(with_mean, held.sum(0), found, ~of_levels),
        errors=errors,
    )


def _without_mixtures(state: State, usable: np.ndarray, of_levels: np.ndarray) -> np.ndarray:
    """The candidates that columns of numbers have without mixtures of several components, (d, c)."""
    ones = np.zeros(usable.shape[1], bool)
    ones[: len(state.candidates)] = [is_anchor(c) for c in state.candidates]
    alone = usable & (ones | of_levels[:, None])
    return np.where(alone.any(1, keepdims=True), alone, usable)


def _reach(gram: np.ndarray, held: np.ndarray, alone: np.ndarray, usable: np.ndarray, of_levels: np.ndarray) -> float:
    """How far shares go from single Gaussians (0) to all mixtures (1): as far as is best for the cells of the other half of the rows."""
    slope = curvature = 0.0
    for half in (0, 1):
        base = _shares(gram[half], held[half], alone, of_levels)
        away = _shares(gram[half], held[half], usable, of_levels) - base
        away[of_levels] = 0.0
        other = gram[1 - half]
        slope -= float(np.einsum("jc,jcd,jd->", base, other, away))
        curvature += float(np.einsum("jc,jcd,jd->", away, other, away))
    return float(np.clip(slope / max(curvature, 1e-300), 0.0, 1.0))


def _shrunk(
    gram: np.ndarray, held: np.ndarray, alone: np.ndarray, usable: np.ndarray, of_levels: np.ndarray, reach: float
) -> np.ndarray:
    """Shares (d, c) between those of single Gaussians and those of all candidates; of levels those of all."""
    found = _shares(gram, held, usable, of_levels)
    base = np.where(of_levels[:, None], found, _shares(gram, held, alone, of_levels))
    return base + reach * (found - base)


def _usable(state: State, gram: np.ndarray, automatic: bool) -> np.ndarray:
    """Which candidates each column has, (d, c): all mixtures or the best, and regressions where the column has some."""
    n = len(state.candidates)
    c = gram.shape[-1]
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
    """The mixtures that count somewhere, by how much, and in any case the first single Gaussian, before other single ones.

    How far from single Gaussians is too far, this one says, as it did when mixtures were judged.
    """
    kept = np.flatnonzero(shares.max(0) > 0)
    ones = [i for i, c in enumerate(state.candidates) if is_anchor(c)]
    if not len(kept):
        kept = np.array([states.single(state)])
    kept = kept[np.argsort(-shares[:, kept].mean(0), kind="stable")]
    if ones:
        kept = kept[kept != ones[0]]
        first = next((place for place, i in enumerate(kept) if i in ones), len(kept))
        kept = np.insert(kept, first, ones[0])
    return kept.astype(int)
