"""One SUM with noise: the only way in which private models reach the rows.

The wanted mu^2 travels as a named step of the question, so it passes through every layer; who adds the noise (the layer `Private` in
this process, or each node by its own policy) takes the step off and answers with a noisy total. A step that nobody took off refuses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from unpooled.client import STEP, Ask, Client, client
from unpooled.errors import BadParameter
from unpooled.federation import Federation, find_private
from unpooled.privacy.noise import sigma_of
from unpooled.privacy.sensitivity import sensitivity_of
from unpooled.tree import Tree


class Look(NamedTuple):
    """A noisy total, and the standard deviation of the noise on each of its numbers."""

    total: Tree
    sigma: float


@client("looks.wanted", STEP, batched=False)
def wanted(up: Tree, client: Client, *, mu2: float) -> Tree:
    """Says how much a look may tell; refuses to let the exact answer out where nobody adds noise."""
    raise BadParameter("a private question was asked where nobody adds noise: put Private(...) around the federation")


def look(fed: Federation, question: Ask, down: Tree, mu2: float) -> Look:
    """Ask one private question: its total with noise of variance 1 / mu2 (times the square of the declared sensitivity).

    Parameters
    ----------
    fed : Federation
        With a `Private` layer in it.
    question : Ask
        Declared by `unpooled.privacy.sensitivity.declare`.
    down : Tree
        Its parameters.
    mu2 : float
        What the look costs; see `unpooled.privacy.accountant`.

    Returns
    -------
    look : Look
        The noisy total and the standard deviation of the noise.
    """
    private = private_layer(fed)
    sigma = sigma_of(mu2, sensitivity_of(question.name)) * private.noise_factor
    total = fed.sum(question.then(wanted, mu2=float(mu2)), down)
    return Look(total, sigma)


def wanted_mu2(question: Ask) -> float | None:
    """The mu^2 that a look asks for, or None for a question that is not a look."""
    return next((float(s.options["mu2"]) for s in question.steps if s.name == wanted.name), None)


def without_wish(question: Ask) -> Ask:
    """The question without the step that asks for noise."""
    return replace(question, steps=tuple(s for s in question.steps if s.name != wanted.name))


def private_layer(fed: Any) -> Any:
    """The layer of a federation that keeps the privacy budget, or the sentence that says how to get one."""
    found = find_private(fed)
    if found is None:
        raise BadParameter("this model needs a privacy budget: fit it to Private(fed, epsilon=, delta=, bounds=)")
    return found
