"""The privacy budget of a node's table: what looks have cost, by its own ledger, and what is left. The coordinator cannot change it."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import Ask
from unpooled.errors import BadParameter, suggest
from unpooled.layers.private.look import wanted, wanted_mu2, without_wish
from unpooled.layers.private.nodes import noise_holders
from unpooled.node.computing import Answered
from unpooled.node.preparation import Preparation
from unpooled.node.questions import Refused
from unpooled.privacy.accountant import epsilon_of
from unpooled.privacy.clipping import parse_bounds
from unpooled.privacy.noise import release, request_digest, sigma_of
from unpooled.privacy.sensitivity import SENSITIVITY

LOOK = wanted.name
MASK = "secure.mask"
ROUNDING = 1e-9


class Budget(NamedTuple):
    """`[privacy]` of policy.toml."""

    epsilon: float  # for the life of this table
    delta: float
    per_question: float = float("inf")  # epsilon of one look, at most
    colluding: int = 1  # nodes assumed to tell the coordinator their noise
    required: bool = False  # whether nothing but looks is answered
    unit: str | None = None  # the column that says whose row it is: the budget then protects all rows of one of them
    max_rows_per_unit: int = 1  # rows of one unit that are used, at most
    bounds: Mapping[str, tuple[float, float]] = {}  # column -> (low, high), from knowledge: values are moved into them

    @property
    def rows_protected(self) -> int:
        """How many rows one unit has at most: the sum moves by so many times what one row moves it."""
        return self.max_rows_per_unit if self.unit is not None else 1


class Charge(NamedTuple):
    """What one look costs, and the name under which it is paid for."""

    mu2: float
    name: str


def read(section: Any, where: str) -> Budget | None:
    """The budget in a policy file, or None if there is none."""
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise BadParameter(f"{where}: privacy is a section, written [privacy]")
    for key in section:
        if key not in Budget._fields:
            raise BadParameter(f"{where}: [privacy] has no key {key!r}: {suggest(key, Budget._fields)}")
    for key in ("epsilon", "delta"):
        value = section.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise BadParameter(f"{where}: [privacy] needs {key} above 0")
    if section["delta"] >= 1:
        raise BadParameter(f"{where}: [privacy] delta must be far below 1, about one over the number of rows squared")
    _check_unit(section, where)
    return Budget(**{**section, "bounds": _read_bounds(section.get("bounds", {}), where)})


def _check_unit(section: Mapping[str, Any], where: str) -> None:
    """Refuse `unit` without `max_rows_per_unit`, and values of the wrong kind."""
    unit = section.get("unit")
    most = section.get("max_rows_per_unit")
    if unit is not None and not isinstance(unit, str):
        raise BadParameter(
            f'{where}: [privacy] unit = {unit!r} should be the name of a column, as in unit = "patient_id"'
        )
    if (unit is None) != (most is None):
        raise BadParameter(f"{where}: [privacy] unit and max_rows_per_unit belong together: give both or none")
    if most is not None and (type(most) is not int or most < 1):
        raise BadParameter(f"{where}: [privacy] max_rows_per_unit = {most!r} should be a whole number of 1 or more")


def _read_bounds(given: Any, where: str) -> dict[str, tuple[float, float]]:
    """The [privacy.bounds] of the policy: low and high for each column."""
    if not isinstance(given, Mapping):
        raise BadParameter(f"{where}: bounds of [privacy] are a section, written [privacy.bounds]")
    try:
        pairs = parse_bounds(given, list(given), len(given)) if given else np.zeros((0, 2))
    except BadParameter as error:
        raise BadParameter(f"{where}: [privacy.bounds]: {error}") from None
    return {name: (float(low), float(high)) for name, (low, high) in zip(given, pairs)}


def preparation_of(budget: Budget | None) -> Preparation:
    """What a budget asks to be done to the rows."""
    return Preparation() if budget is None else Preparation(budget.unit, budget.max_rows_per_unit, budget.bounds)


def spent(looks: Mapping[str, float], delta: float) -> float:
    """The epsilon of all looks so far."""
    return epsilon_of(sqrt(sum(looks.values())), delta) if looks else 0.0


def add_noise(
    answered: Answered, budget: Budget | None, looks: Mapping[str, float] | None, secret: bytes, pinned: bool
) -> tuple[Answered, Charge]:
    """(the answer with noise, its charge); refused beyond the budget.

    Parameters
    ----------
    answered : Answered
        The exact answer to a question that asks for noise.
    budget : Budget or None
        What the policy allows; None: no private question is answered.
    looks : mapping of str to float, or None
        What earlier looks cost, by name, from the ledger; None without a ledger.
    secret : bytes
        The node's own, from which the noise is drawn.
    pinned : bool
        Whether the peers' keys are pinned. Only then do nodes share the noise of a masked total: otherwise a coordinator could invent
        the other nodes.
    """
    ask = answered.ask
    node = answered.client.name
    if budget is None or looks is None:
        raise Refused(f"{node!r} has no privacy budget: its owner writes [privacy] into policy.toml")
    mu2 = _checked_cost(answered, budget)
    plain = without_wish(ask)
    sigma = sigma_of(mu2, SENSITIVITY[ask.name]) / sqrt(_holders(plain, budget) if pinned else 1)
    made = release(answered.up, request_digest(ask.name, ask.options, answered.down, mu2), secret, sigma)
    charge = Charge(mu2 * budget.rows_protected**2, made.name.hex())
    _check(budget, looks, charge, node)
    return answered._replace(ask=plain, up=made.answer), charge


def _checked_cost(answered: Answered, budget: Budget) -> float:
    """The cost mu^2 that the question names; refused if no noise could make its answer private."""
    ask = answered.ask
    client = answered.client
    if ask.name not in SENSITIVITY:
        raise Refused(f"{ask.name} does not bound what one row can change: no noise makes it private")
    if budget.delta * answered.n_rows >= 1:
        raise Refused(
            f"delta = {budget.delta:g} in the policy of {client.name!r} is not below one over its rows: its owner lowers it"
        )
    if float(to_numpy(client.w).max(initial=0.0)) > 1:
        raise Refused(f"{client.name!r} has row weights above 1: a private sum counts a row once at most")
    mu2 = wanted_mu2(ask)
    if mu2 is None or not 0 < mu2 < np.inf:
        raise Refused(f"{ask.name} was asked privately without a cost above 0")
    return mu2


def _holders(ask: Ask, budget: Budget) -> int:
    """Among how many nodes the noise of a total is shared: 1 unless the answer is masked."""
    masks = [step for step in ask.steps if step.name == MASK]
    return noise_holders(len(masks[0].options["cohort"]), budget.colluding) if masks else 1


def _check(budget: Budget, looks: Mapping[str, float], charge: Charge, node: str) -> None:
    """Refuse a look that costs more than one question may, or more than is left; a look that was paid for is free."""
    if charge.name in looks:  # the same question about the same rows: the same noise, which costs nothing
        return
    if epsilon_of(sqrt(charge.mu2), budget.delta) > budget.per_question * (1 + ROUNDING):
        raise Refused(
            f"this look costs more than the epsilon {budget.per_question:g} that {node!r} allows for one question"
        )
    if spent({**looks, charge.name: charge.mu2}, budget.delta) > budget.epsilon * (1 + ROUNDING):
        raise Refused(
            f"epsilon {spent(looks, budget.delta):.2f} of {budget.epsilon:g} is spent at {node!r}, and this look needs more than is left"
        )
