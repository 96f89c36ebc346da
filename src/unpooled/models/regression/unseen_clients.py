"""Residuals of whole clients left out of the fit: one SUM, which recalibrates intervals for clients never seen.

Besides a histogram of residuals the SUM has the sums of an analysis of variance by client. If clients do not differ, intervals are as wide
as for known clients. If each has its own offset or spread, the variance between clients is estimated from few clients: quantiles are
stretched like those of a t distribution whose degrees of freedom are those of the sum of both variances (Satterthwaite). The larger the
share of variance between clients, the less the histogram of rows says about a new client: its quantiles are averaged with those of a
normal distribution.

Axes: o outputs, b bins; a leading 2 is for r, the standardised residual, and |r|.

References
----------
Satterthwaite, An approximate distribution of estimates of variance components, Biometrics Bulletin 1946.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit
from scipy.stats import norm

from unpooled.arrays import Array, Float
from unpooled.client import SUM, Client, client
from unpooled.errors import BadParameter, DataWarning
from unpooled.federation import Federation
from unpooled.maths import bayes_linear, calibration
from unpooled.maths.feature_maps import features
from unpooled.models.regression.design import Fitted, group_of
from unpooled.models.regression.scaling import standard_rows
from unpooled.tree import message

ENOUGH_CLIENTS = 9  # a new client has a larger residual than n others with probability 1 / (n + 1), here 1 / 10
MAX_RESIDUAL = 6.0  # residuals are clipped at this when clients are compared, so that one row cannot decide


@message("regression.ClientResiduals")
class ClientResiduals(NamedTuple):
    """Residuals of clients left out, and how they vary within and between clients: for r and for |r|."""

    counts: Float[Array, "o b", ">=0 rows"]
    clients: Float[Array, "", ">=0"]
    rows: Float[Array, "", ">=0 rows"]
    total: Float[Array, "2 o"]  # sum over rows
    squares: Float[Array, "2 o", ">=0"]  # sum of squares over rows
    between: Float[Array, "2 o", ">=0"]  # sum over clients of (the client's sum)^2 / its rows
    errors: Float[Array, "o", ">=0"]  # squared errors of standardised targets, summed over rows
    spread: Float[Array, "o", ">=0"]  # squared standardised targets: the errors of predicting the mean


@client("regression.client_residuals", SUM, batched=False)
def client_residuals(fitted: Fitted, client: Client, *, spec: dict) -> ClientResiduals:
    """Standardised residuals of all rows of a client, as if the whole client had not been fitted."""
    x, y, w, _ = standard_rows(fitted.design.scaling, client, 0.0, 0)
    z = features(spec, fitted.design.kernel, x)
    mean, variance = bayes_linear.left_out_together(fitted.posterior, z, y, group_of(fitted.design, client))
    residuals = (y - mean) / np.sqrt(variance)
    clipped = np.clip(residuals, -MAX_RESIDUAL, MAX_RESIDUAL)
    both = np.stack([clipped, np.abs(clipped)])  # (2, n, o)
    rows = w.sum()
    total = w @ both
    present = np.asarray(float(rows > 0))
    counts = calibration.histogram(residuals, w).astype(np.float32)
    between = total**2 / max(rows, 1e-300)
    return ClientResiduals(counts, present, rows, total, w @ both**2, between, w @ (y - mean) ** 2, w @ y**2)


def design_effect(seen: ClientResiduals) -> np.ndarray:  # (o,)
    """The design effect: the F ratio of residuals by client, between 1 and the mean number of rows per client.

    It is 1 if clients do not differ, and the upper bound if all residuals of a client are equal.
    """
    between, within = _mean_squares(seen)
    ratio = (between / np.maximum(within, 1e-300)).max(0)
    return np.clip(ratio, 1.0, max(seen.rows / max(seen.clients, 1), 1.0))


@message("regression.ClientVariance")
class ClientVariance(NamedTuple):
    """The variance of a residual of a new client, (o,) each."""

    sd: np.ndarray  # its square root
    between: np.ndarray  # the share of variance between clients
    dof: np.ndarray  # degrees of freedom: from about the number of clients, if they differ much, to that of rows


def client_variance(seen: ClientResiduals) -> ClientVariance:
    """Variance components of residuals by client."""
    between, within = _mean_squares(seen)  # (2, o)
    per_client = max(seen.rows / max(seen.clients, 1), 1.0)
    of_clients = np.maximum(between, within) / per_client  # the mean square of clients' means
    of_rows = within * (1 - 1 / per_client)
    total = of_clients + of_rows
    half_variance = of_clients**2 / max(seen.clients - 1, 1) + of_rows**2 / max(seen.rows - seen.clients, 1)  # of total
    dof = (total**2 / np.maximum(half_variance, 1e-300)).min(0)
    share = 1 - within[0] / np.maximum(total[0], 1e-300)
    return ClientVariance(np.sqrt(total[0]), np.clip(share, 0.0, 1.0), dof)


def client_quantiles(rows: np.ndarray, p: np.ndarray, known: ClientVariance, output: int) -> np.ndarray:
    """Quantiles at levels p for a new client; `rows` are those of the residuals of all rows of clients left out."""
    sd, between, dof = (float(value[output]) for value in known)
    normal = norm.ppf(p)
    mixed = (1 - between) * rows + between * sd * normal
    return mixed * stdtrit(dof, p) / normal


def _mean_squares(seen: ClientResiduals) -> tuple[np.ndarray, np.ndarray]:
    """(between clients, within clients), (2, o) each: of r and of |r|."""
    between = (seen.between - seen.total**2 / seen.rows) / max(seen.clients - 1, 1)
    within = (seen.squares - seen.between) / max(seen.rows - seen.clients, 1)
    return between, within


def check_clients(recalibrate: bool | str, fed: Federation) -> None:
    """Refuse `recalibrate="clients"` with a single client."""
    if recalibrate == "clients" and len(fed.names) < 2:
        raise BadParameter(
            "recalibrate='clients' leaves out one client at a time but there is only one: use True instead"
        )


def warn_if_no_better_than_the_mean(seen: ClientResiduals, scale: np.ndarray, simpler: str) -> None:
    """Warn when clients left out are predicted no better than by the mean of all; `simpler` is a model to try, if there is one."""
    error = float(np.sqrt((scale**2 * seen.errors / seen.rows).mean()))
    spread = float(np.sqrt((scale**2 * seen.spread / seen.rows).mean()))
    if error >= spread:
        warnings.warn(
            f"clients left out are predicted with an error of {error:.4g}, the mean of all targets has {spread:.4g}: "
            f"the model does not generalise to clients never seen; {simpler}leave out columns that identify clients",
            DataWarning,
            stacklevel=2,
        )


def warn_if_few(clients: int) -> None:
    """Warn when the differences between clients are estimated from few clients."""
    if clients < ENOUGH_CLIENTS:
        warnings.warn(
            f"intervals for clients never seen rest on {clients} clients: with fewer than {ENOUGH_CLIENTS}, how clients differ is "
            "not well known and the intervals may be too narrow; use more clients",
            DataWarning,
            stacklevel=2,
        )
