"""Parameters and server rows that FedBNR refuses before any round is spent. Sends nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_X_y

from unpooled.errors import BadData, BadParameter
from unpooled.maths.feature_maps import ACTIVATIONS, FREQUENCIES, MAPS, SPECTRA, Kernel, features
from unpooled.models.regression import check_group_by
from unpooled.parameters import above, at_least, flag, not_below_zero, one_of, share, widths

CHOICES = {"kernel": ("exact", "average", "distill"), "spectrum": SPECTRA, "frequencies": FREQUENCIES, "activation": ACTIVATIONS,
           "optimizer": ("auto", "lbfgs", "adam"), "inputs": ("robust", "standard"), "missing": ("impute", "refuse"),
           "recalibrate": (True, False, "clients")}  # fmt: skip
NOT_GIVEN = ("monomials", "sum of kernels")  # maps of other estimators, or made from the data
MINIMA = {"max_iter": 0, "patience": 1, "local_epochs": 1, "distill_steps": 1, "latent_dim": 1,
         "degree": 1}  # whole numbers and their least values  # fmt: skip


def check_parameters(model: Any) -> None:
    """Refuse a FedBNR with invalid parameters."""
    for name, known in CHOICES.items():
        one_of(name, getattr(model, name), known)
    if isinstance(model.features, str):
        one_of("features", model.features, ["auto", *(name for name in MAPS if name not in NOT_GIVEN)])
    elif not hasattr(model.features, "named_parameters"):
        raise BadParameter(f"features={model.features!r} must be a name or a torch module")
    _check_numbers(model)
    if model.device != "cpu":
        check_device(model.device)
    if model.server_data is not None:
        check_server_data(model.server_data)
    _check_together(model)


def _check_numbers(model: Any) -> None:
    share("validation_fraction", model.validation_fraction)
    for name, least in MINIMA.items():
        at_least(name, getattr(model, name), least)
    if model.n_frequencies != "auto":
        at_least("n_frequencies", model.n_frequencies, 1)
    widths("hidden", model.hidden)
    for name in ("learning_rate", "local_rate", "distill_rate"):
        above(name, getattr(model, name), 0)
    for name in ("weight_decay", "distill_weight", "constant"):
        not_below_zero(name, getattr(model, name))
    for name in ("server_noise", "refit"):
        flag(name, getattr(model, name))
    check_group_by(model.group_by)


def check_device(device: Any) -> None:
    """Refuse a device that torch cannot use."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise BadParameter(f"device={device!r} cannot be used here ({reason}): use 'cpu'") from error


def check_server_data(given: Any) -> tuple[np.ndarray, np.ndarray]:
    """The server's rows X (r, d) and targets y (r,) or (r, o)."""
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise BadParameter(f"server_data must be a pair (X, y), not {type(given).__name__}: the rows at the server")
    try:
        return check_X_y(*given, dtype=np.float64, multi_output=True, y_numeric=True)
    except (ValueError, TypeError) as error:
        raise BadData(f"server_data cannot be used: {str(error).splitlines()[0]}") from error


def check_module(model: Any, kernel: Kernel, d: int) -> None:
    """Refuse a torch module that does not map rows of d columns to rows of features."""
    if isinstance(model.features, str):
        return
    try:
        shape = features(model._spec(), kernel, np.zeros((2, d))).shape
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise BadParameter(
            f"features={type(model.features).__name__} cannot take rows of {d} columns: {reason}"
        ) from error
    if len(shape) != 2 or shape[0] != 2:
        raise BadParameter(
            f"features={type(model.features).__name__} turns 2 rows into shape {tuple(shape)}: it must give one row of features per row"
        )


def _check_together(model: Any) -> None:
    if model.kernel == "distill" and model.server_data is None:
        raise BadParameter("kernel='distill' needs rows at the server: give server_data=(X, y)")
    if model.kernel != "exact" and model.group_by is not None:
        raise BadParameter(
            f"group_by={model.group_by!r} needs kernel='exact': kernels trained at the clients do not model groups"
        )
    if model.recalibrate is True and model.validation_fraction == 0 and model.server_data is None:
        raise BadParameter(
            f"recalibrate={model.recalibrate!r} needs rows not fitted: set validation_fraction above 0 or give server_data"
        )
    if model.recalibrate == "clients" and (model.server_data is not None or not model.refit):
        raise BadParameter(
            "recalibrate='clients' leaves out clients of a last layer that has all rows: leave out server_data, set refit=True"
        )


def registered(module: Any) -> str:
    """The name under which a torch module of the user is a feature map."""
    from unpooled.maths.torch_training import register

    name = f"{type(module).__module__}.{type(module).__qualname__}"
    register(name, module)
    return name
