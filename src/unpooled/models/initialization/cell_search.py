"""K Gaussians from cells, from many starts at the server: agglomeration, k-means, then swaps of a merge for a split.

Nothing is sent. The starts are: the K groups left when cells are merged two by two, each time the pair whose merger costs the
bound least (Runnalls 2007), and k-means of the cell means in three metrics. EM on cells follows each; the best ones are then
improved by merging two components and splitting a third while the bound rises (Ueda et al. 2000).
"""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from unpooled.models.initialization import cell_mixture
from unpooled.models.initialization.cell_mixture import Cells, Fit, Moments
from unpooled.models.initialization.covariance_kinds import CovarianceKind, Variances, kind_of

STARTS = 18  # of k-means
LLOYD = 10  # rounds of k-means
BETTER = 1e-4  # per row: the least gain of a swap
ALIKE = 0.8  # two fits count as one if each component shares this part of its rows with one of the other
ROWS_PER_COLUMN = 2  # of a component whose covariance is a matrix, at least
FAR = 0.05  # per row: fits whose scores differ by more are not alike
COARSE = 1e-3  # per row: a gain that ends EM from one of many starts
IMPROVED = 3  # fits that swaps are tried on
SWAPS = 10  # that one fit may accept
PLAIN_RIDGE = 1e-3  # of a column's variance, added to those of k-means' clusters
PROPOSALS = 3  # swaps tried before one is accepted


def search(cells: Cells, k: int, shape: str, rng: np.random.Generator) -> list[Fit]:
    """Mixtures of k Gaussians that fit the cells, the best first; there are as many as end apart."""
    kind = kind_of(shape)
    centre = cell_mixture.centre_of(cells)
    within = kind.positive(cell_mixture.within(cells))
    root = kind.root(within)
    means, covs = kind.whitened(cells.means - centre, cells.covs, root)
    white = Cells(cells.n, means, covs)
    spaces = _spaces(cells, white, kind)
    labels = [merged(white, k, kind)]
    labels += [_k_means(spaces[i % len(spaces)], cells.n, k, rng) for i in range(STARTS if k > 1 else 0)]
    seen = cell_mixture.moments(white, kind)
    fits = apart([cell_mixture.fit(seen, _one_hot(found, k), kind, COARSE) for found in labels], seen.n)
    best = [cell_mixture.fit(seen, found.shares, kind) for found in fits[:IMPROVED]]
    if k > 2:
        best += [improved(seen, found, kind) for found in best]
    fits = apart(best + fits[IMPROVED:], seen.n)
    return [_unwhitened(found, centre, root, kind) for found in fits]


def _unwhitened(fit: Fit, centre: np.ndarray, root: np.ndarray, kind: CovarianceKind) -> Fit:
    """A fit to whitened cells in the units of the cells themselves."""
    means, covs = kind.unwhitened(fit.means, fit.covs, root)
    return fit._replace(means=centre + means, covs=covs)


def apart(fits: list[Fit], n: np.ndarray) -> list[Fit]:
    """The fits by score; of those that end alike the first one stays, so that last digits decide nothing.

    Those with a component of very few rows come last: EM on the rows would let it collapse.
    """
    kept: list[Fit] = []
    for found in fits:
        if not any(alike(found, other, n) for other in kept):
            kept.append(found)
    return sorted(kept, key=lambda f: (starved(f, n), -f.score))


def starved(fit: Fit, n: np.ndarray) -> bool:
    """Whether a component has too few rows for a covariance of its own."""
    shape = "full" if fit.covs.ndim == 3 else "diag"
    return bool(fit.weights.min() * n.sum() < least_rows(fit.means.shape[1], shape))


def least_rows(d: int, shape: str) -> float:
    """Rows that a component should have."""
    return ROWS_PER_COLUMN * (d + 1 if shape == "full" else 2)


def alike(one: Fit, other: Fit, n: np.ndarray) -> bool:
    """Whether each component of one shares nearly all its rows with a component of the other."""
    if abs(one.score - other.score) > FAR:
        return False
    pairs = one.shares[:, :, None], other.shares[:, None, :]
    common = np.tensordot(n, np.minimum(*pairs), 1)
    either = np.tensordot(n, np.maximum(*pairs), 1)
    overlap = common / np.maximum(either, 1e-300)
    return bool(overlap.max(1).min() > ALIKE)


def _spaces(cells: Cells, white: Cells, kind: CovarianceKind) -> list[np.ndarray]:
    """The cell means where the covariance within cells, the whole covariance, or each variance is the identity."""
    whole = kind.positive(cell_mixture.total(cells, kind))
    about = cells.means - cell_mixture.centre_of(cells)
    standard = about / np.sqrt(kind.diagonal(whole))
    if isinstance(kind, Variances):
        return [white.means, standard]
    return [white.means, np.linalg.solve(kind.root(whole), about.T).T, standard]


def _one_hot(labels: np.ndarray, k: int) -> np.ndarray:
    """Labels as indicators (rows, k)."""
    return (labels[:, None] == np.arange(k)).astype(float)


# ---- k-means of the cell means ----


def _k_means(points: np.ndarray, n: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Labels (m,), from k-means++ seeds."""
    return lloyd(points, n, seeds(points, n, k, rng))[0]


def lloyd(points: np.ndarray, n: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """k-means of weighted points from these centres: (labels (m,), centres (k, d)); a centre without points stays."""
    labels = _nearest(points, centres)
    for _ in range(LLOYD):
        weights = _one_hot(labels, len(centres)) * n[:, None]
        held = weights.sum(0)[:, None]
        centres = np.where(held > 0, weights.T @ points / np.maximum(held, 1e-300), centres)
        before = labels
        labels = _nearest(points, centres)
        if (labels == before).all():
            break
    return labels, centres


def k_means_fit(cells: Cells, k: int, shape: str, rng: np.random.Generator) -> Fit:
    """The k clusters of k-means of the cell means, as Gaussians whose columns are independent: how scikit-learn starts, nearly."""
    kind = kind_of(shape)
    k = min(k, len(cells.n))
    held = _one_hot(_k_means(cells.means, cells.n, k, rng), k) * cells.n[:, None]
    n = np.maximum(held.sum(0), cell_mixture.NOTHING)[:, None]
    means = held.T @ cells.means / n
    squares = held.T @ (kind.diagonal(cells.covs) + cells.means**2) / n
    variances = np.maximum(squares - means**2, 0.0) + PLAIN_RIDGE
    return Fit(-np.inf, n[:, 0] / n.sum(), means, kind.from_variances(variances), held)


def _nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The nearest centre of each point."""
    distances = (centres**2).sum(-1) - 2 * points @ centres.T
    return distances.argmin(1)


def seeds(points: np.ndarray, n: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++: each next seed drawn by its squared distance to those before."""
    chosen = [_drawn(n, rng)]
    distance = ((points - points[chosen[0]]) ** 2).sum(1)
    for _ in range(k - 1):
        chosen.append(_drawn(n * distance if (n * distance).any() else n, rng))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(1))
    return points[chosen]


def _drawn(weights: np.ndarray, rng: np.random.Generator) -> int:
    """A place drawn in proportion to weights."""
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum()).clip(max=len(weights) - 1))


# ---- agglomeration ----


def merged(cells: Cells, k: int, kind: CovarianceKind) -> np.ndarray:
    """Labels (m,) of the k groups that cheapest mergers leave; fewer cells than k stay as they are."""
    n = cells.n.copy()
    means = cells.means.copy()
    scatter = cells.covs * n.reshape((-1,) + (1,) * (cells.covs.ndim - 1))
    groups = Cells(n, means, scatter)  # scatters instead of covariances
    labels = np.arange(len(n))
    alive = np.ones(len(n), bool)
    lengths = _code_length(groups.n, groups.covs, kind)
    costs = _all_costs(groups, lengths, kind)
    for _ in range(len(n) - k):
        i, j = divmod(int(np.argmin(costs)), len(n))
        _join(groups, i, j, kind)
        lengths[i] = _code_length(groups.n[i : i + 1], groups.covs[i : i + 1], kind)[0]
        labels[labels == j] = i
        alive[j] = False
        costs[j], costs[:, j] = np.inf, np.inf
        others = np.flatnonzero(alive & (np.arange(len(n)) != i))
        costs[np.minimum(i, others), np.maximum(i, others)] = _costs(groups, lengths, i, others, kind)
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def _all_costs(groups: Cells, lengths: np.ndarray, kind: CovarianceKind) -> np.ndarray:
    """What each merger costs, (m, m), above the diagonal; infinite elsewhere."""
    m = len(groups.n)
    costs = np.full((m, m), np.inf)
    for i in range(m - 1):
        others = np.arange(i + 1, m)
        costs[i, others] = _costs(groups, lengths, i, others, kind)
    return costs


def _costs(groups: Cells, lengths: np.ndarray, i: int, others: np.ndarray, kind: CovarianceKind) -> np.ndarray:
    """What merging group `i` with each of the others costs in code length."""
    n = groups.n[i] + groups.n[others]
    difference = groups.means[others] - groups.means[i]
    share = groups.n[i] * groups.n[others] / n
    between = kind.outer(difference) * share.reshape((-1,) + (1,) * (groups.covs.ndim - 1))
    merged = groups.covs[i] + groups.covs[others] + between
    return _code_length(n, merged, kind) - lengths[i] - lengths[others]


def _code_length(n: np.ndarray, scatter: np.ndarray, kind: CovarianceKind) -> np.ndarray:
    """Minus twice the log-likelihood of groups, up to what mergers do not change; the prior is the identity."""
    d = scatter.shape[-1]
    nu = cell_mixture.prior_rows(d)
    covs = (scatter + nu * kind.identity(d)) / (n + nu).reshape((-1,) + (1,) * (scatter.ndim - 1))
    return n * kind.log_det(covs)


def _join(groups: Cells, i: int, j: int, kind: CovarianceKind) -> None:
    """Group j becomes part of group i."""
    n = groups.n[i] + groups.n[j]
    difference = groups.means[j] - groups.means[i]
    between = kind.outer(difference) * (groups.n[i] * groups.n[j] / n)
    groups.covs[i] += groups.covs[j] + between
    groups.means[i] += difference * (groups.n[j] / n)
    groups.n[i] = n


# ---- swaps: two components become one, another becomes two ----


def improved(seen: Moments, found: Fit, kind: CovarianceKind) -> Fit:
    """The fit after as many swaps as raise its score."""
    for _ in range(SWAPS):
        better = _swap(seen, found, kind)
        if better is None:
            break
        found = cell_mixture.fit(seen, better.shares, kind)
    return found


def _swap(seen: Moments, found: Fit, kind: CovarianceKind) -> Fit | None:
    """The first of the most promising swaps that raises the score, or None."""
    held = found.shares * seen.n[:, None]
    costs = _merge_costs(seen, held, kind)
    gains, sides = _split_gains(seen, held, found, kind)
    for i, j, k in _promising(costs, gains):
        shares = found.shares.copy()
        shares[:, i] += shares[:, j]
        shares[:, j] = found.shares[:, k] * sides[k]
        shares[:, k] = found.shares[:, k] * ~sides[k]
        tried = cell_mixture.fit(seen, shares, kind, COARSE)
        if tried.score > found.score + BETTER:
            return tried
    return None


def _promising(costs: np.ndarray, gains: np.ndarray) -> list[tuple[int, int, int]]:
    """The best swaps (merge i with j, split k) among the three cheapest mergers and the three best splits."""
    cheapest = np.argsort(costs, axis=None, kind="stable")[:3]
    splits = np.argsort(-gains, kind="stable")[:3]
    swaps = []
    for i, j in (divmod(int(flat), len(gains)) for flat in cheapest):
        for k in map(int, splits):
            if k not in (i, j) and np.isfinite(costs[i, j]) and np.isfinite(gains[k]):
                swaps.append((costs[i, j] - gains[k], (i, j, k)))
    swaps.sort(key=itemgetter(0))
    return [swap for _, swap in swaps[:PROPOSALS]]


def _merge_costs(seen: Moments, held: np.ndarray, kind: CovarianceKind) -> np.ndarray:
    """Log-likelihood that each merger of two components costs, (k, k), above the diagonal."""
    n, means, covs = cell_mixture.components(seen, held, kind)
    groups = Cells(n, means, covs * n.reshape((-1,) + (1,) * (covs.ndim - 1)))
    return _all_costs(groups, _code_length(n, groups.covs, kind), kind) / 2


def _split_gains(
    seen: Moments, held: np.ndarray, found: Fit, kind: CovarianceKind
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Log-likelihood that cutting each component in two would gain, (k,), and the cells on one side of each cut."""
    gains = []
    sides = []
    for k in range(held.shape[1]):
        gain, side = _split_gain(seen, held[:, k], found.means[k], found.covs[k], kind)
        gains.append(gain)
        sides.append(side)
    return np.array(gains), sides


def _split_gain(
    seen: Moments, held: np.ndarray, mean: np.ndarray, cov: np.ndarray, kind: CovarianceKind
) -> tuple[float, np.ndarray]:
    """(gain, side) of one component, cut through its mean across its long axis."""
    deviations = seen.means - mean
    between = np.tensordot(held, kind.outer(deviations), 1) / max(held.sum(), 1e-300)
    side = deviations @ kind.long_axis(cov, between) > 0
    halves = np.stack([held * side, held * ~side], axis=1)
    if halves.sum(0).min() < 2:
        return -np.inf, side
    n, _, covs = cell_mixture.components(seen, halves, kind)
    two = n @ (np.log(n / n.sum()) - kind.log_det(covs) / 2)
    one = -held.sum() * kind.log_det(cov) / 2
    return float(two - one), side
