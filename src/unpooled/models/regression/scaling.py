"""Standardisation of rows over all clients: one SUM of means, one of squares about them, one of histograms for robust inputs.

Missing targets, constant targets and unwanted missing values are refused here, before any round is spent.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import Array, Float, doubles, to_numpy
from unpooled.client import SUM, Client, client
from unpooled.data.checks import without_labels
from unpooled.data.designed import refuse_rare_levels
from unpooled.errors import BadData, DataWarning
from unpooled.federation import Federation
from unpooled.maths import calibration
from unpooled.models.column_names import called, names_of
from unpooled.models.regression import heavy_tails
from unpooled.models.regression.heavy_tails import HeavyTails
from unpooled.models.regression.held_out_rows import held_out
from unpooled.tree import message


@message("regression.Sums")
class Sums(NamedTuple):
    """Counts and sums of the rows to fit."""

    rows: Float[Array, "", ">=0 rows"]
    all_rows: Float[Array, "", ">=0 rows"]  # with those held out
    seen: Float[Array, "d", ">=0 rows"]  # values that are not missing
    x: Float[Array, "d"]
    y: Float[Array, "o"]


@message("regression.Scatter")
class Scatter(NamedTuple):
    """Sums of squares about the means."""

    xx: Float[Array, "d", ">=0"]
    yy: Float[Array, "o", ">=0"]


@message("regression.Scaling")
class Scaling(NamedTuple):
    """How rows are standardised: missing values filled in, heavy columns compressed, then (x - x_mean) / x_scale."""

    fill: Float[Array, "d"]
    x_mean: Float[Array, "d"]
    x_scale: Float[Array, "d"]
    y_mean: Float[Array, "o"]
    y_scale: Float[Array, "o"]
    tails: HeavyTails | None = None


@message("regression.Spread")
class ColumnHistograms(NamedTuple):
    """A histogram of each column."""

    counts: Float[Array, "d b", ">=0 rows"]


@message("regression.Rows")
class Rows(NamedTuple):
    """A client's standardised rows; each has a weight in the fit and one in the check."""

    x: Array  # (..., n, d)
    y: Array  # (..., n, o)
    w: Array  # (..., n) 0 for a row that is held out
    held: Array  # (..., n) 0 for a row that is fitted


# ---- questions; a fraction `share` of the rows is held out, chosen by `seed` ----


@client("regression.sums", SUM, adds=True)
def sums(nothing: None, client: Client, *, share: float, seed: int) -> Sums:
    """Counts and sums of every column and of the targets."""
    x, y, w, held = _rows(client, share, seed)
    n = w.sum(-1)
    rows = (w + held).sum(-1)
    w = w[..., None]
    seen = ~np.isnan(x)
    x = np.nan_to_num(x)
    return Sums(n, rows, (w * seen).sum(-2), (w * x).sum(-2), (w * y).sum(-2))


@client("regression.scatter", SUM, adds=True)
def scatter(scaling: Scaling, client: Client, *, share: float, seed: int) -> Scatter:
    """Sums of squares of every column and of the targets, about their means over all clients."""
    x, y, w, _ = standard_rows(scaling, client, share, seed)
    return Scatter((w[..., None] * x**2).sum(-2), (w[..., None] * y**2).sum(-2))


@client("regression.spreads", SUM, adds=True)
def column_histograms(
    scaling: Scaling, client: Client, *, share: float, seed: int, thinning: int = 1
) -> ColumnHistograms:
    """Histograms of the standardised columns, without missing values, in single precision."""
    raw, _, w, _ = _rows(client, share, seed)
    present = w[..., None] * ~np.isnan(raw)
    counts = calibration.histogram(standard(scaling, raw), present, heavy_tails.thinned_edges(thinning))
    return ColumnHistograms(counts.astype(np.float32))


def standard_rows(scaling: Scaling, client: Client, share: float, seed: int) -> Rows:
    """The client's rows, standardised; missing values become the mean."""
    x, y, w, held = _rows(client, share, seed)
    return Rows(standard(scaling, x), (y - scaling.y_mean) / scaling.y_scale, w, held)


def standard(scaling: Scaling, x: np.ndarray) -> np.ndarray:
    """Rows x (..., n, d), standardised."""
    x = np.where(np.isnan(x), scaling.fill, x)
    if scaling.tails is not None:
        x = heavy_tails.compress(scaling.tails, x)
    x -= scaling.x_mean
    x /= scaling.x_scale
    return x


def raw_rows(client: Client) -> np.ndarray:  # (..., n, d)
    """The client's rows in double precision."""
    return to_numpy(client.x).astype(np.float64, copy=False)


def _rows(client: Client, share: float, seed: int) -> Rows:
    """A client's rows and targets, with weights of training and of held-out rows."""
    if client.y is None:
        raise BadData(f"client {client.name!r} has no targets: give y")
    y, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.y, client.w))
    x = raw_rows(client)
    y = y[..., None] if y.ndim == w.ndim else y
    held = held_out(x, y, share, seed)
    return Rows(x, y, w * ~held, w * held)


# ---- at the server ----


def check_targets(fed: Federation) -> None:
    """Refuse missing or non-numeric targets, where the clients are in this process."""
    for c in fed.here():
        if c.y is None:
            raise without_labels(c.name, "targets")
        if to_numpy(c.y).dtype.kind not in "fiu" or c.y.ndim > 2:
            kind = to_numpy(c.y).dtype
            raise BadData(
                f"client {c.name!r} has targets that are not numbers (Unknown label type {kind}): give numeric y"
            )


def standardise(
    fed: Federation, share: float, seed: int, missing: str, scale: bool = True, needs_held: bool = True
) -> tuple[Scaling, Sums]:
    """Means over all clients and, with `scale`, standard deviations about them: one SUM each.

    Without `needs_held` the fit can do without rows held out: there is a warning if there are none, else an error.
    """
    first = tree.map(to_numpy, fed.sum(sums.using(share=share, seed=seed), None))
    _check_sums(first, share, missing, names_of(fed, len(first.seen)), needs_held)
    refuse_rare_levels(fed, names_of(fed, len(first.x)), first.seen, first.x)
    mean = first.x / np.maximum(first.seen, 1)
    centred = Scaling(mean, mean, np.ones_like(mean), first.y / first.rows, np.ones_like(first.y))
    if not scale:
        return centred, first
    second = tree.map(to_numpy, fed.sum(scatter.using(share=share, seed=seed), centred))
    check_varies(second.yy, first.y, float(first.rows))
    x_scale = np.sqrt(second.xx / np.maximum(first.seen, 1))  # missing values do not widen a column
    x_scale = np.where(x_scale > 1e-12 * np.maximum(np.abs(centred.x_mean), 1e-300), x_scale, 1.0)
    return centred._replace(x_scale=x_scale, y_scale=np.sqrt(second.yy / first.rows)), first


def histograms(
    fed: Federation, scaling: Scaling, share: float, seed: int, thinning: int = 1
) -> np.ndarray:  # (d, bins)
    """Rows per bin of every standardised column: one SUM, of fewer and wider bins where `thinning` is above 1."""
    ask = column_histograms.using(share=share, seed=seed, thinning=thinning)
    return heavy_tails.spread_out(doubles(fed.sum(ask, scaling).counts), thinning)


def compress_heavy(scaling: Scaling, counts: np.ndarray) -> Scaling:
    """The scaling with heavy-tailed columns compressed, by counts (d, bins). Other columns stay as they are."""
    tails = heavy_tails.find_heavy(counts)
    mean, scale = heavy_tails.moments(tails, counts)
    in_data_units = HeavyTails(
        heavy=tails.heavy,
        median=scaling.x_mean + scaling.x_scale * tails.median,
        robust_std=scaling.x_scale * tails.robust_std,
    )
    x_mean = np.where(tails.heavy, mean, scaling.x_mean)
    x_scale = np.where(tails.heavy, scale, scaling.x_scale)
    return scaling._replace(x_mean=x_mean, x_scale=x_scale, tails=in_data_units)


def _check_sums(first: Sums, share: float, missing: str, names: list[str], needs_held: bool) -> None:
    """Refuse too few rows, nothing held out where it is needed, and missing values where they are refused."""
    if first.rows < 2:
        plural = "" if first.rows == 1 else "s"
        raise BadData(f"all clients together have {first.rows:g} sample{plural} to fit: at least 2 are needed")
    if share > 0 and first.all_rows - first.rows < 1:
        _tell_none_held(share, first.rows, needs_held)
    gaps = first.rows * len(first.seen) - first.seen.sum()
    most_gaps = called(names, [int(np.argmin(first.seen))])
    if gaps > 1e-9 * first.rows and missing == "refuse":
        raise BadData(f"{gaps:.0f} values are missing, most in {most_gaps}: use missing='impute' or fill them in first")
    if gaps > 1e-9 * first.rows:
        of = "" if share == 0 else f" of the {first.rows:.0f} training rows"
        warnings.warn(
            f"{gaps:.0f} missing values{of}, most in {most_gaps}, are taken to be their column's mean over all clients: "
            "use missing='refuse' to stop instead, or fill them in first with MixtureImputer",
            DataWarning,
            stacklevel=2,
        )


def _tell_none_held(share: float, rows: float, needed: bool) -> None:
    """Refuse a fit without rows held out, or warn if it can do without."""
    none = f"validation_fraction={share} holds out none of {rows:g} rows"
    if needed:
        raise BadData(f"{none}: raise it, or set it to 0 for none")
    text = f"{none}: the kernel of the last round is taken; raise it to choose the round, or use BayesianRegression for so few rows"
    warnings.warn(text, DataWarning, stacklevel=2)


def check_varies(yy: np.ndarray, y: np.ndarray, rows: float) -> None:
    """Refuse constant targets, from their sum and their scatter about the mean."""
    mean = y / rows
    flat = yy <= 1e-24 * rows * np.maximum(mean**2, 1e-300)
    if flat.any():
        which = int(np.argmax(flat))
        raise BadData(f"all {rows:g} targets are {mean[which]:g}: there is nothing to learn from constant y")
