"""Parameters that FedEM refuses before any round is spent, and the quantiser that they name. Sends nothing."""

from __future__ import annotations

from typing import Any

from unpooled.choices import resolve
from unpooled.errors import BadParameter
from unpooled.federation import Federation
from unpooled.layers.compression import QUANTISERS, Dither, Identity, Sparsify, compression_of
from unpooled.parameters import at_least, one_of, within

MEMORIES = ("statistics", "field", "none")
COHORTS = ("bernoulli", "fixed")
STARTS = ("cells", "gather", "random")


def check_parameters(model: Any) -> None:
    """Refuse a FedEM with invalid parameters."""
    model._family(), model._quantiser()
    within("fraction", model.fraction, 0, 1, "the probability that a client takes part in a round")
    if model.step_size != "auto":
        within("step_size", model.step_size, 0, 1, "gamma, the share of the way to the new statistics")
    if model.alpha is not None:
        within("alpha", model.alpha, 0, 1, "the memory's step")
    for name in ("batch_size", "epoch"):
        if getattr(model, name) is not None:
            at_least(name, getattr(model, name), 1)
    at_least("patience", model.patience, 0)
    at_least("warm_up", model.warm_up, 0)
    if model.guard is not None and not model.guard > 0:
        raise BadParameter(f"guard={model.guard!r} must be above 0, or None for no guard")
    if not 0 <= model.decay <= 1:
        raise BadParameter(f"decay={model.decay!r} must be from 0 (constant steps) to 1")
    one_of("memory", model.memory, MEMORIES)
    one_of("cohort", model.cohort, COHORTS)
    one_of("init_params", model.init_params, STARTS)


def check_compression(model: Any, fed: Federation) -> None:
    """A Compressed around the federation and the parameters of this class must not say different things."""
    layer = compression_of(fed)
    if layer is None:
        return
    given = [name for name in ("levels", "quantiser", "omega", "alpha") if getattr(model, name) is not None]
    if given:
        raise BadParameter(
            f"{given[0]}= compresses what clients send, and so does the Compressed around the federation: give one of them"
        )
    if layer.memory != (model.memory != "none"):
        raise BadParameter(
            f"memory={model.memory!r} of {type(model).__name__} and memory={layer.memory} of Compressed disagree: "
            "set both to keep a memory, or neither"
        )


def quantiser_of(model: Any) -> Any:
    """The quantiser that `levels`, `quantiser` or `omega` names; BadParameter for more than one of them."""
    given = [name for name in ("levels", "quantiser", "omega") if getattr(model, name) is not None]
    if len(given) > 1:
        raise BadParameter(f"{' and '.join(given)} are ways to say the same: give one of them")
    if model.omega is not None:
        if not model.omega >= 0:
            raise BadParameter(f"omega={model.omega!r} must be at least 0: it is the relative variance of what is sent")
        return Sparsify(1 / (1 + model.omega))
    if model.levels is not None:
        return resolve(Dither(model.levels), QUANTISERS, "quantiser")
    return resolve(model.quantiser or Identity(), QUANTISERS, "quantiser")
