"""Checks of GaussianMixture: what it refuses before the first round or once the number of rows is known, and its warnings.

Nothing is sent. Error messages about starting values begin like scikit-learn's, for code that looks for those.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from unpooled.errors import BadParameter
from unpooled.maths import gaussian
from unpooled.models.mixture.em import Candidate

CENTRES = ("kmeans", "k-means++", "random_from_data")
STARTS = ("cells", *CENTRES, "random", "gather")
SOLVERS = ("em", "fedem", "vr-fedem")
KNOWN = {"covariance_type": gaussian.SHAPES, "init_params": STARTS, "solver": SOLVERS}
LEAST = {"max_iter": 0, "n_init": 1, "tol": 0, "reg_covar": 0, "min_count": 0, "verbose": 0, "verbose_interval": 1}


def check_parameters(model: Any, sizes: tuple[int, ...]) -> None:
    """Refuse parameters with an unknown name or a number that is too small."""
    for name, known in KNOWN.items():
        if getattr(model, name) not in known:
            raise BadParameter(f"{name}={getattr(model, name)!r} is not known: use one of {', '.join(known)}")
    for name, least in LEAST.items():
        if getattr(model, name) < least:
            raise BadParameter(f"{name}={getattr(model, name)!r} must be at least {least}")
    if min(sizes, default=0) < 1:
        raise BadParameter(f"n_components={model.n_components!r} must be at least 1")
    _check_given(model, sizes)


def _check_given(model: Any, sizes: tuple[int, ...]) -> None:
    """Starting values that need no look at the data."""
    given = [name for name in ("weights_init", "means_init", "precisions_init") if getattr(model, name) is not None]
    if given and len(sizes) > 1:
        raise BadParameter(f"{given[0]} is for one n_components, and {model.n_components!r} were given: fit one")
    if model.weights_init is not None:
        _check_weights(np.asarray(model.weights_init, dtype=float), sizes[0])


def _check_weights(weights: np.ndarray, k: int) -> None:
    """Refuse weights_init outside of [0, 1] or that do not add up to 1."""
    _check_shape("weights", weights, (k,))
    if (weights < 0).any() or (weights > 1).any():
        raise BadParameter(
            "The parameter 'weights' should be in the range [0, 1], but got "
            f"max value {weights.min():.5f}, min value {weights.max():.5f}"
        )
    if not np.isclose(weights.sum(), 1.0, rtol=0, atol=1e-6):
        raise BadParameter(f"The parameter 'weights' should be normalized, but got sum(weights) = {weights.sum():.5f}")


def check_against_data(model: Any, k: int, d: int, rows: float) -> None:
    """What can be refused only once the width and the number of rows are known."""
    if rows < k:
        raise BadParameter(f"n_components={k} is more than n_samples={rows:.0f}: lower it")
    if model.means_init is not None:
        _check_shape("means", np.asarray(model.means_init, dtype=float), (k, d))
    if model.precisions_init is not None:
        _check_precisions(np.asarray(model.precisions_init, dtype=float), model.covariance_type, k, d)


def _check_precisions(precisions: np.ndarray, shape: str, k: int, d: int) -> None:
    """Refuse precisions_init that are not symmetric and positive definite."""
    wanted: dict[str, tuple[int, ...]] = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
    _check_shape(f"{shape} precision", precisions, wanted[shape])
    if shape in ("diag", "spherical"):
        if (precisions <= 0).any():
            raise BadParameter(f"The parameter '{shape} precision' should be positive: it is one over the variance")
        return
    if not _positive_definite(precisions):
        raise BadParameter(
            f"The parameter '{shape} precision' should be symmetric, positive-definite: check each matrix"
        )


def _positive_definite(matrices: np.ndarray) -> bool:
    """Whether matrices are symmetric and positive definite, whatever the units of the columns."""
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    if not (diagonal > 0).all():
        return False
    root = np.sqrt(diagonal)
    alike = matrices / root[..., :, None] / root[..., None, :]
    symmetric = np.allclose(alike, np.swapaxes(alike, -1, -2))
    return bool(symmetric and (np.linalg.eigvalsh(alike) > 0).all())


def _check_shape(name: str, given: np.ndarray, wanted: tuple[int, ...]) -> None:
    """Refuse an initial value of the wrong shape, in scikit-learn's words."""
    if given.shape != wanted:
        parameter = "precisions_init" if name.endswith("precision") else f"{name}_init"
        text = f"The parameter '{name}' should have the shape of {wanted}, but got {given.shape}"
        raise BadParameter(f"{text}: give {parameter} by component")


# ---- after the fit ----


def warn_of(model: Any, best: Candidate, exact: bool) -> None:
    """Warn of a fit that did not converge, and of empty components."""
    if not best.converged and model.tol > 0 and model.max_iter > 0:
        warnings.warn(_not_converged(model, best, exact), ConvergenceWarning, stacklevel=5)
    if best.left_out:
        warn_of_left_out(best.left_out, 6)
    if best.reseeded:
        text = (
            f"{best.reseeded} empty components were re-seeded: n_components={len(best.params.weights)} may be too many"
        )
        warnings.warn(text, ConvergenceWarning, stacklevel=5)


def warn_of_left_out(n: int, stacklevel: int, parameter: str = "n_components") -> None:
    """Warn of components that a study did without."""
    text = f"{n} components of fewer rows than the study's min_rows_per_component were left out: lower {parameter}"
    warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel)


def _not_converged(model: Any, best: Candidate, exact: bool) -> str:
    """The sentence on a fit that did not converge, beginning as scikit-learn's does."""
    text = (
        "Best performing initialization did not converge. Try different init parameters, or increase max_iter, tol, or check for "
        "degenerate data."
    )
    if not exact:
        return f"{text} After {model.n_iter_} rounds an exact EM step over all clients still gains tol={model.tol:g} per row or more"
    faster = "" if model.accelerate else "; accelerate=True needs fewer rounds"
    return f"{text} The last round gained {best.gain:.2g} per row, above tol={model.tol:g}{faster}"


def all_float32(X: Any) -> bool:
    """Whether all rows are float32 arrays of NumPy."""
    if isinstance(X, Mapping):
        X = list(X.values())
    tables = X if isinstance(X, list) else [X]
    return all(isinstance(table, np.ndarray) and table.dtype == np.float32 for table in tables)
