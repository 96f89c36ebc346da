"""What the last SUMs of `Pooling` give: held-out losses of every candidate, and each site's own numbers where the study asks for them."""

from __future__ import annotations

import numpy as np

from unpooled.federation import Federation
from unpooled.models.pooling import pages, sites
from unpooled.models.pooling.rounds import Plan, State, numbers
from unpooled.models.pooling.rows import Frame
from unpooled.models.pooling.sites import Compared, Fitted, Losses, Others


def fitted(plan: Plan, state: State) -> Fitted:
    """Every candidate as it was fitted, without each fold and to all rows."""
    assert state.partial is not None
    assert state.rows is not None
    q = state.common.at.shape[1]
    common = plan.scales(state.common.loss, state.rows, q)
    slopes = plan.scales(state.slopes.loss, state.rows, q - 1 + int(state.sites))
    return Fitted(state.common.at, common, state.slopes.at, slopes, state.partial)


def held_out(fed: Federation, plan: Plan, found: Fitted) -> Losses:
    """Losses of left-out rows under every candidate: one SUM."""
    return numbers(fed.sum(plan.asks(sites.held_out).using(sizes=plan.sizes), found))


def in_units(family: str, frame: Frame, coef: np.ndarray) -> tuple[float, np.ndarray]:
    """(intercept, coefficients) of the columns as they came."""
    y_sd, y_mean = (float(frame.y_sd), float(frame.y_mean)) if family == "normal" else (1.0, 0.0)
    slopes = coef[1:] * y_sd / frame.sd
    return float(y_mean + coef[0] * y_sd - frame.mean @ slopes), slopes


def given(fed: Federation, plan: Plan, state: State) -> dict[str, dict]:
    """What each site gave, and the shared model without it: one SUM."""
    assert state.without is not None
    assert state.rows is not None
    others = Others(state.frame, state.without.at)
    common = state.common
    scale = plan.scales(state.common.loss, state.rows)[-1]
    down = Compared(others, common.at[-1], np.asarray(scale), common.hessian[-1])
    seen = numbers(fed.sum(sites.influence.using(family=plan.family, sites=fed.names), down))
    shift = np.log(state.frame.y_sd) if plan.family == "normal" else 0.0
    found = {}
    for i, name in enumerate(fed.names):
        intercept, coef = in_units(plan.family, state.frame, others.coef[i])
        found[name] = {
            "rows": float(seen.n[i]),
            "information": float(seen.information[i]),
            "coef_without": coef,
            "intercept_without": intercept,
            "loss_without": float(seen.own[i] + shift),
            "loss_with": float(seen.shared[i] + shift),
        }
    return found


def gained(fed: Federation, plan: Plan, found: Fitted, chosen: list[int]) -> dict[str, dict]:
    """What each site got: its held-out losses, its group, its personalised coefficients: two SUMs."""
    ask = plan.asks(sites.held_out_by_site).using(sizes=plan.sizes, sites=fed.names, chosen=chosen)
    losses = numbers(fed.sum(ask, found))
    own = numbers(fed.sum(sites.personal_by_site.using(family=plan.family, sites=fed.names), found.partial))
    got = {}
    for i, name in enumerate(fed.names):
        intercept, coef = in_units(plan.family, found.partial.frame, own.coef[i])
        got[name] = pages.gains(losses, i) | {"intercept": intercept, "coef": coef}
    return got
