"""GaussianMixture fitted by FedEM or VR-FedEM, which send less and allow clients to miss rounds. Sends what `fedem` sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unpooled.errors import BadParameter, suggest
from unpooled.federation import Federation
from unpooled.maths.mixture import Params
from unpooled.models import initialization
from unpooled.models.fedem import FedEM, VRFedEM
from unpooled.models.mixture.checks import check_against_data
from unpooled.models.mixture.em import Candidate, State
from unpooled.models.mixture.starts import StartSettings, starts

WARM_UP = 20  # rounds of VR-FedEM with all rows: the early, long steps decide which local optimum the fit ends in


def solver_of(model: Any, k: int, given: Params | None = None) -> FedEM:
    """The FedEM that does the rounds of a GaussianMixture with k components, from the start `given` or its own."""
    family = {"name": "gaussian", "n_components": k, "shape": model.covariance_type, "reg": model.reg_covar}
    options = {name: getattr(model, name) for name in ("max_iter", "tol", "fraction", "random_state")}
    if model.solver == "vr-fedem":
        options["warm_up"] = WARM_UP
    return _kind(model)(family, params_init=given, **{**options, **(model.solver_options or {})})


def start(model: Any, fed: Federation, settings: StartSettings, rng: np.random.Generator) -> Any:
    """The state before the first round, at the start that exact EM would have."""
    frame = initialization.frame(fed)
    k = settings.sizes[0]
    check_against_data(model, k, len(frame.mean), float(frame.rows))
    warm = model.warm_start and hasattr(model, "means_")
    given = model.params() if warm else starts(fed, frame, settings, rng)[0]
    return solver_of(model, k, given).init(fed, rng)


def as_exact(model: Any, k: int, state: Any, history: list[dict]) -> State:
    """FedEM's last state as the exact solver would have left it."""
    solver = solver_of(model, k)
    logliks = [row["loglik"] for row in history]
    gain = logliks[-1] - logliks[-2] if len(logliks) > 1 else np.inf
    params = solver.result(state)
    last = state.progress.loglik if np.isfinite(state.progress.loglik) else (logliks or [-np.inf])[-1]
    done = Candidate(params, (params,), last, gain, 0, solver.done(state, history), None)
    return State((done,), state.rows)


def check(model: Any, fed: Federation, sizes: tuple[int, ...]) -> None:
    """Refuse what FedEM cannot do."""
    cause = "a federation that is Compressed" if model.fraction == 1.0 else f"fraction={model.fraction!r}"
    why = f"{cause} is fitted by FedEM, which" if model.solver == "em" else f"solver={model.solver!r}"
    if len(sizes) > 1 or model.personal_weights or model.accelerate:
        text = "fits one n_components with shared weights: leave personal_weights and accelerate as they are"
        raise BadParameter(f"{why} {text}")
    _check_options(model.solver_options or {}, _kind(model))
    solver_of(model, sizes[0]).check(fed)


def _kind(model: Any) -> type[FedEM]:
    """The class behind the solver's name."""
    return VRFedEM if model.solver == "vr-fedem" else FedEM


def _check_options(options: Mapping[str, Any], kind: Any) -> None:
    """Refuse options that the solver does not have."""
    for name in options:
        if name not in kind._get_param_names():
            raise BadParameter(f"{kind.__name__} has no option {name!r}: {suggest(name, kind._get_param_names())}")
