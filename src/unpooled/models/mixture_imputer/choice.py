"""How much each mixture and each regression counts, from sums over hidden cells. Nothing is sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.maths import gaussian
from unpooled.models.mixture_imputer import checked, evidence, stacking
from unpooled.models.mixture_imputer import state as states
from unpooled.models.mixture_imputer.candidates import is_anchor
from unpooled.models.mixture_imputer.questions import Judged
from unpooled.models.mixture_imputer.state import CHOSEN, JUDGED, State


class Columns(NamedTuple):
    """By which candidates each column may be foretold, and what is known of these beside the hidden cells."""

    alone: np.ndarray  # (d, c) without mixtures of several components, where it holds numbers
    usable: np.ndarray  # (d, c) all
    of_levels: np.ndarray  # (d,) whether it holds levels
    known: np.ndarray  # (d, c, c) sums of products of errors that all rows say


def judged(state: State, found: Judged, automatic: bool) -> State:
    """The state after the hidden cells have been looked at: shares known, mixtures that do not count dropped.

    Parameters
    ----------
    state : State
        With mixtures and regressions fitted without the hidden cells.
    found : Judged
        Sums over the hidden cells of either half of the rows.
    automatic : bool
        Whether several mixtures may count; if not, the best of them stands for all.
    """
    n = len(state.candidates)
    held, with_mean = found.cells, found.gram.sum(0)
    gram = found.gram[:, :, 1:, 1:]
    of_levels = np.isin(np.arange(len(state.kinds)), states.layout(state).discrete)
    usable = _usable(state, gram, automatic)
    known = _known(state, found, gram.shape[-1]) if automatic else np.zeros(gram.shape[1:])
    columns = Columns(_without_mixtures(state, usable, of_levels), usable, of_levels, known)
    reach = _reach(gram, held, columns)
    shares = _shrunk(gram.sum(0), held.sum(0), columns, reach)
    kept = _kept(state, shares[:, :n])
    some = np.append(kept, np.arange(n, gram.shape[-1]))
    columns = _of(columns, some)
    sums = gram[:, :, some[:, None], some]
    crossed = [_shrunk(sums[h], held[h], columns, reach) for h in (1, 0)]
    tried = tuple(state.candidates[i]._replace(settled=False, loglik=-np.inf, path=()) for i in kept)
    errors = np.sqrt(np.einsum("hjcc->c", gram[..., :n, :n]) / max(held.sum(), 1e-300))
    return state._replace(
        candidates=tried,
        stage=JUDGED if held.sum() else CHOSEN,
        rounds=0,
        shares=shares[:, kept],
        crossed=np.stack(crossed)[:, :, : len(kept)],
        level_shares=shares[:, n:],
        checked=checked.checks(with_mean, held.sum(0), shares, ~of_levels),
        errors=errors,
    )


def _without_mixtures(state: State, usable: np.ndarray, of_levels: np.ndarray) -> np.ndarray:
    """The candidates that columns of numbers have without mixtures of several components, (d, c)."""
    ones = np.zeros(usable.shape[1], bool)
    ones[: len(state.candidates)] = [is_anchor(c) for c in state.candidates]
    alone = usable & (ones | of_levels[:, None])
    return np.where(alone.any(1, keepdims=True), alone, usable)


def _known(state: State, found: Judged, c: int) -> np.ndarray:
    """What all rows say of the errors of single Gaussians in columns of numbers, (d, c, c); 0 for all others."""
    layout = states.layout(state)
    ones = np.flatnonzero([is_anchor(candidate) for candidate in state.candidates])
    known = np.zeros((len(state.kinds), c, c))
    if len(ones) < 2 or not layout.numbers:
        return known
    covs = np.concatenate([gaussian.unpack_triangle(state.candidates[i].params.covs) for i in ones])
    informative = evidence.informative(found.deviations, state.seen)
    columns = evidence.Known(state.table, state.seen, found.cells.sum(0)[layout.column_of], informative)
    priors = np.array([state.candidates[i].prior for i in ones])
    products = evidence.products(covs / np.outer(state.scale, state.scale), priors, columns)
    numbers = np.array(layout.numbers)
    known[np.ix_(numbers, ones, ones)] = products[[layout.parts[j].start for j in numbers]]
    return known


def _of(columns: Columns, some: np.ndarray) -> Columns:
    """The same with some of the candidates."""
    known = columns.known[:, some[:, None], some]
    return columns._replace(alone=columns.alone[:, some], usable=columns.usable[:, some], known=known)


def _reach(gram: np.ndarray, held: np.ndarray, columns: Columns) -> float:
    """How far shares go from single Gaussians (0) to all mixtures (1): as far as is best for the cells of the other half of the rows."""
    slope = curvature = 0.0
    for half in (0, 1):
        base, found = _two(gram[half], held[half], columns)
        away = found - base
        away[columns.of_levels] = 0.0
        other = gram[1 - half]
        slope -= float(np.einsum("jc,jcd,jd->", base, other, away))
        curvature += float(np.einsum("jc,jcd,jd->", away, other, away))
    return float(np.clip(slope / max(curvature, 1e-300), 0.0, 1.0))


def _shrunk(gram: np.ndarray, held: np.ndarray, columns: Columns, reach: float) -> np.ndarray:
    """Shares (d, c) between those of single Gaussians and those of all candidates; of levels those of all."""
    base, found = _two(gram, held, columns)
    base = np.where(columns.of_levels[:, None], found, base)
    return base + reach * (found - base)


def _two(gram: np.ndarray, held: np.ndarray, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Shares (d, c) of single Gaussians, by hidden cells and by what all rows say of them; and of all candidates.

    Among all candidates, the single Gaussians with these shares count as one more.
    """
    base = _shares(gram, held, columns.alone, columns.of_levels, columns.known)
    each = np.broadcast_to(np.eye(gram.shape[-1]), gram.shape)
    mixed = np.concatenate([each, base[:, :, None]], axis=2)  # (d, c, c + 1)
    extended = np.einsum("jca,jcd,jdb->jab", mixed, gram, mixed, optimize=True)
    usable = np.column_stack([columns.usable, ~columns.of_levels])
    found = _shares(extended, held, usable, columns.of_levels)
    return base, np.einsum("jca,ja->jc", mixed, found)


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


def _shares(
    gram: np.ndarray, held: np.ndarray, usable: np.ndarray, of_levels: np.ndarray, known: np.ndarray | None = None
) -> np.ndarray:
    """Shares (d, c); of the first candidate that a column has where there are no hidden cells at all."""
    if held.sum():
        return stacking.shares(gram, held, usable, of_levels, known)
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
