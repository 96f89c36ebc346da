"""What `FedMissEM` asks: SUMs alone.

Before the rounds: `describe` (count of visits, sums of values and of their squares) and, unless the size of the table is given,
`occupied` (numbers of clients with visits in ranges of sites and of dates). In every round: `regress` (a gradient and a curvature per
site or per date and candidate). To choose: `judge` (errors of the candidates on visits held back). At the end: `seen` (sums by date).

Visits are held back by a hash of their site and date, so the choice depends neither on the split into clients nor on the values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.maths.hashing import absorb
from unpooled.models.fedmissem import bilinear, families
from unpooled.models.fedmissem.bilinear import Factors, Half, average_theta
from unpooled.models.fedmissem.families import mean as mean_of
from unpooled.models.fedmissem.families import typical_variance
from unpooled.tree import message

N_RANGES = 1024  # ranges of numbers of one `occupied`


@message("fedmissem.Description")
class Description(NamedTuple):
    """Counts and sums of the visits."""

    rows: Float[Array, "", ">=0 rows"]
    bad: Float[Array, "", ">=0 rows"]  # rows that are not visits
    value: Float[Array, ""]
    square: Float[Array, "", ">=0"]
    negative: Float[Array, "", ">=0"]  # clients with negative values


@message("fedmissem.Ranges")
class Ranges(NamedTuple):
    """Ranges [low + i width, low + (i + 1) width) of the numbers of sites and of dates; width 0 asks for lengths in bits."""

    low: Float[Array, "two", ">=0"]
    width: Float[Array, "two", ">=0"]


@message("fedmissem.Occupied")
class Occupied(NamedTuple):
    """Clients with visits in each range."""

    clients: Float[Array, "two b", ">=0"]


@message("fedmissem.Fits")
class Fits(NamedTuple):
    """The candidates, each for values (value - centre) / scale."""

    factors: tuple[Factors, ...]
    centre: Float[Array, "c"]
    scale: Float[Array, "c", ">=0"]


@message("fedmissem.Averages")
class Averages(NamedTuple):
    """Candidates, and weights of their models in each average that is judged; the identity matrix judges each model alone."""

    fits: Fits
    weights: Float[Array, "k m"]


@message("fedmissem.Held")
class Held(NamedTuple):
    """Over visits held back; an error is divided by the square root of the cell's typical variance, a loss is its square."""

    visits: Float[Array, "", ">=0 rows"]
    errors: Float[Array, "k k"]  # products of two averages' errors: the losses are on the diagonal
    losses: Float[Array, "k k"]  # products of two averages' losses: how certain their difference is


@message("fedmissem.Width")
class Width(NamedTuple):
    """A model, and how uncertain its coefficients are."""

    factors: Factors
    sites: Float[Array, "j q q"]
    dates: Float[Array, "l q q"]


@message("fedmissem.Widths")
class Widths(NamedTuple):
    """The models of an average, for values (value - centre) / scale."""

    models: tuple[Width, ...]
    weights: Float[Array, "m", ">=0"]
    centre: Float[Array, ""]
    scale: Float[Array, "", ">=0"]


@message("fedmissem.Moments")
class Moments(NamedTuple):
    """By date, over cells, of one model."""

    mean: Float[Array, "l"]
    noise: Float[Array, "l", ">=0"]  # variance of a cell, up to the dispersion
    sites: Float[Array, "l", ">=0"]  # variance through the sites' coefficients
    pull: Float[Array, "l q"]  # derivative of the total by the date's coefficients


@message("fedmissem.Seen")
class Seen(NamedTuple):
    """By date, over the visits."""

    value: Float[Array, "l"]
    mean: Float[Array, "l"]  # of the average
    pearson: Float[Array, "", ">=0"]  # sum of (value - mean)^2 / variance
    models: tuple[Moments, ...]


# ---- before the rounds ----


@client("fedmissem.describe", SUM, batched=False)
def describe(nothing: None, client: Client, *, family: str, trials: int) -> Description:
    """Number of visits and of invalid ones, sums of values and of their squares, whether any is negative."""
    x, valid = valid_visits(client, family, trials)
    value = x[valid, 2]
    numbers = (len(x), (~valid).sum(), value.sum(), (value**2).sum(), (value < 0).any())
    return Description(*(np.asarray(float(n)) for n in numbers))


def valid_visits(client: Client, family: str, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows (n, 3), which of them are visits with a value that the family can have)."""
    x = to_numpy(client.x).astype(np.float64)
    present = to_numpy(client.w) > 0
    x = x[present] if x.shape[1] == 3 else np.full((int(present.sum()), 3), np.nan)
    cells = x[:, :2]
    value = x[:, 2]
    whole = ((cells >= 0) & (cells == np.floor(cells))).all(axis=1)
    fits = np.isfinite(value)
    if family not in ("gaussian", "auto"):
        fits &= value >= 0
    if family in ("geometric", "binomial"):
        fits &= value == np.floor(value)
    if family == "binomial":
        fits &= value <= trials
    return x, whole & fits


@client("fedmissem.occupied", SUM, batched=False)
def occupied(ranges: Ranges, client: Client) -> Occupied:
    """Whether this client has visits in each range of numbers of sites and of dates."""
    x = to_numpy(client.x).astype(np.float64)
    present = to_numpy(client.w) > 0
    found = [_occupied(x[present, side], ranges.low[side], ranges.width[side]) for side in (0, 1)]
    return Occupied(np.stack(found))


def _occupied(numbers: np.ndarray, low: float, width: float) -> np.ndarray:  # (b,)
    """Which ranges hold a number."""
    index = (numbers - low) // width if width else np.frexp(numbers)[1]
    inside = (index >= 0) & (index < N_RANGES) & (numbers >= low)
    return (np.bincount(index[inside].astype(np.int64), minlength=N_RANGES) > 0).astype(np.float64)


# ---- rounds ----


@client("fedmissem.regress", SUM, adds=True, batched=False)
def regress(
    fits: Fits, client: Client, *, side: str, families: list, folds: list, n_folds: int, trials: int
) -> tuple[Half, ...]:
    """Gradient and curvature of the coefficients of every site or date, for every candidate without the visits of its fold."""
    x, w = _visits(client)
    fold = fold_of(x, n_folds)
    answers = []
    for i, (factors, family, own) in enumerate(zip(fits.factors, families, folds)):
        used = fold != own
        scaled = _scaled(x[used], fits.centre[i], fits.scale[i])
        answers.append(bilinear.half(factors, side, scaled, w[used], family, trials))
    return tuple(answers)


@client("fedmissem.judge", SUM, adds=True, batched=False)
def judge(
    asked: Averages, client: Client, *, families: list, folds: list, n_folds: int, trials: int, models: list
) -> Held:
    """Errors and losses of averages on visits held back; `models` has the model of each candidate, which is one of its folds."""
    x, w = _visits(client)
    fold = fold_of(x, n_folds)
    held = np.isin(fold, folds)
    x, w, fold = x[held], w[held], fold[held]
    fits = asked.fits
    weights = to_numpy(asked.weights)
    means = np.zeros((weights.shape[1], len(x)))
    for i, (factors, family, own, model) in enumerate(zip(fits.factors, families, folds, models)):
        of_fold = fold == own
        means[model, of_fold] = fits.centre[i] + fits.scale[i] * _means(factors, x[of_fold], family, trials)
    typical = (np.median(means, axis=0) - fits.centre[0]) / fits.scale[0]
    errors = weights @ (x[:, 2] - means) / fits.scale[0] / np.sqrt(typical_variance(typical, families[0], trials))
    losses = errors**2
    return Held(np.asarray(w.sum()), (errors * w) @ errors.T, (losses * w) @ losses.T)


@client("fedmissem.seen", SUM, adds=True, batched=False)
def seen(widths: Widths, client: Client, *, family: str, trials: int) -> Seen:
    """Values, means and variances of the visited cells, summed by date."""
    x, w = _visits(client)
    site = x[:, 0].astype(np.int64)
    date = x[:, 1].astype(np.int64)
    n_dates = len(widths.models[0].factors.right)
    value = (x[:, 2] - widths.centre) / widths.scale
    mean = mean_of(average_theta(widths.weights, [m.factors for m in widths.models], site, date), family, trials)
    both = bilinear.sums_by(date, w[:, None] * np.column_stack([value, mean]), n_dates)
    pearson = w @ ((value - mean) ** 2 / families.variance(mean, family, trials))
    cells = (w[:, None] * cell_moments(m, site, date, family, trials) for m in widths.models)
    of_models = tuple(as_moments(bilinear.sums_by(date, c, n_dates)) for c in cells)
    return Seen(both[:, 0], both[:, 1], np.asarray(float(pearson)), of_models)


def cell_moments(
    width: Width, site: np.ndarray, date: np.ndarray, family: str, trials: int
) -> np.ndarray:  # (n, 3 + q)
    """Of each cell: mean, variance up to the dispersion, variance through its site's coefficients, derivative by its date's."""
    left, right = width.factors
    mean = families.mean(bilinear.theta_at(width.factors, site, date), family, trials)
    rate = families.rate(mean, family, trials)
    z = right[date][:, bilinear.learned("left", left.shape[1])]
    through = rate**2 * np.einsum("np,npq,nq->n", z, width.sites[site], z)
    pull = rate[:, None] * left[site][:, bilinear.learned("right", left.shape[1])]
    return np.column_stack([mean, families.variance(mean, family, trials), through, pull])


def as_moments(by_date: np.ndarray) -> Moments:  # (l, 3 + q)
    """Sums by date as a message."""
    return Moments(by_date[:, 0], by_date[:, 1], by_date[:, 2], by_date[:, 3:])


def fold_of(x: np.ndarray, n_folds: int) -> np.ndarray:  # (n, 3) -> (n,)
    """The fold of each visit, by a hash of its site and date."""
    start = np.zeros(len(x), dtype=np.uint64)
    return (absorb(start, x[:, :2]) % np.uint64(n_folds)).astype(np.int64)


def _visits(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """The client's visits and weights as 64 bit floats."""
    return to_numpy(client.x).astype(np.float64), to_numpy(client.w).astype(np.float64)


def _scaled(x: np.ndarray, centre: float, scale: float) -> np.ndarray:
    """Visits with values in scaled units."""
    return np.column_stack([x[:, :2], (x[:, 2] - centre) / scale])


def _means(factors: Factors, x: np.ndarray, family: str, trials: int) -> np.ndarray:
    """The mean of each visit."""
    site = x[:, 0].astype(np.int64)
    date = x[:, 1].astype(np.int64)
    return mean_of(bilinear.theta_at(factors, site, date), family, trials)
