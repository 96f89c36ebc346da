"""The start of FedEM: rows that suit the family, standardised; parameters from sums over small regions, or random.

Sends the SUMs of `unpooled.models.initialization`, one SUM that counts unsuitable rows, and one of targets or of second moments where a
family needs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.choices import describe
from unpooled.errors import BadData
from unpooled.federation import Federation
from unpooled.maths import gaussian
from unpooled.maths.mixture import Params
from unpooled.models import initialization
from unpooled.models.fedem import server
from unpooled.models.fedem.client import Down, covariance, inspect, target
from unpooled.models.fedem.families import FAMILIES, CommonCovariance
from unpooled.models.fedem.server import State
from unpooled.tree import Tree


def first_state(model: Any, fed: Federation, rng: np.random.Generator) -> State:
    """Rows are checked and standardised, and parameters are chosen or taken as given."""
    family = model._family()
    _refuse_bad_rows(fed, family)
    frame = initialization.frame(fed)
    mean = to_numpy(frame.mean)
    scale = to_numpy(frame.scale)
    if family.supervised:
        mean, scale = _with_target(fed, mean, scale)
    shift, unit = family.frame(mean, scale)
    if model.params_init is not None:
        params = family.unscale(model.params_init, -shift / unit, 1 / unit)
    else:
        params = _first_params(model, fed, family, frame, (mean - shift) / unit, scale / unit, rng)
        params = _with_total_covariance(fed, family, params, shift, unit)
    params = tree.map(lambda a: np.asarray(a, np.float64), params)
    return server.begin(params, family.moments(params), shift, unit)


def _refuse_bad_rows(fed: Federation, family: Any) -> None:
    """Every client says how many rows do not suit the family, before any work."""
    ask = inspect.using(family=describe(family, FAMILIES))
    rows, bad = fed.sum(ask, None)
    if not bad:
        return
    whose = ""
    for c in fed.here():  # over a network no client is named
        its_rows, its_bad = ask(None, c)
        if its_bad:
            rows = its_rows
            bad = its_bad
            whose = f" of client {c.name!r}"
            break
    raise BadData(f"{float(bad):.0f} of {float(rows):.0f} rows{whose} do not suit the family: it wants {family.wants}")


def _with_target(fed: Federation, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, scale) of the columns and, last, of the target."""
    y = fed.sum(target, None)
    y_mean = float(y.y / y.n)
    y_scale = np.sqrt(max(float(y.yy / y.n) - y_mean**2, 1e-300))
    return np.append(mean, y_mean), np.append(scale, y_scale)


def _first_params(
    model: Any,
    fed: Federation,
    family: Any,
    frame: Any,
    mean: np.ndarray,
    scale: np.ndarray,
    rng: np.random.Generator,
) -> Tree:
    """From clusters of the rows, where the family can use them; otherwise random."""
    if not hasattr(family, "from_clusters") or model.init_params == "random":
        return family.start(mean, scale, rng)
    if model.init_params == "cells" and getattr(family, "shape", "") in ("full", "tied"):
        (found,) = initialization.cells_start(fed, frame, [family.n_components], 1, family.shape, rng)
        return _in_units(found, frame, mean, scale, family.shape)
    weights, means, variances = _clusters(model, fed, frame, family.n_components, rng)
    return family.from_clusters(weights, mean + scale * means, scale**2 * (variances + 1e-3))


def _in_units(found: Params, frame: Any, mean: np.ndarray, scale: np.ndarray, shape: str) -> Params:
    """A mixture of the clients' own units as one of columns with this mean and scale."""
    ratio = scale / frame.scale
    covs = gaussian.unpack_covs(found.covs, shape) * np.outer(ratio, ratio)
    return Params(found.weights, mean + ratio * (found.means - frame.mean), gaussian.pack_covs(covs, shape))


def _clusters(
    model: Any, fed: Federation, frame: Any, k: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (k,), means and variances (k, d) of standardised clusters."""
    if model.init_params == "cells":
        (found,) = initialization.cells_start(fed, frame, [k], 1, "diag", rng)
        return found.weights, (found.means - frame.mean) / frame.scale, found.covs / frame.scale**2
    centres = initialization.centres(fed, frame, k, 5)
    clusters = initialization.cluster_centres(centres, k, rng)
    return clusters.n / clusters.n.sum(), clusters.x, clusters.xx / clusters.n[:, None]


def _with_total_covariance(fed: Federation, family: Any, params: Tree, shift: np.ndarray, unit: np.ndarray) -> Tree:
    """CommonCovariance learns within-component covariance from that of all rows: one SUM."""
    if not (isinstance(family, CommonCovariance) and family.covariance == "implied"):
        return params
    found = fed.sum(covariance, Down(params, None, shift, unit, np.asarray(0), np.asarray(0)))
    return params._replace(total=to_numpy(found.xx) / float(found.n), centre=np.zeros_like(shift))
