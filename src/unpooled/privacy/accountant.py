"""What noisy sums cost: a look of parameter mu is a Gaussian mechanism of noise 1 / mu per unit of sensitivity, and mu^2 adds up.

The sum of mu^2 over all looks decides epsilon for every delta, exactly [1]_: nothing is lost by composition, and the looks may be chosen
one after the other in the light of earlier answers [2]_.

References
----------
.. [1] Balle and Wang (2018). Improving the Gaussian mechanism for differential privacy. ICML.
.. [2] Dong, Roth and Su (2022). Gaussian differential privacy. Journal of the Royal Statistical Society B.
"""

from __future__ import annotations

from math import exp, log1p, sqrt
from typing import NamedTuple

from scipy.optimize import brentq
from scipy.special import log_ndtr

from unpooled.errors import BadParameter, UnpooledError
from unpooled.parameters import is_number

LARGEST_MU = 1e4  # beyond it there is no privacy to speak of
ROUNDING = 1e-9  # by how much the parts of a budget may exceed the whole


class BudgetSpent(UnpooledError, RuntimeError):
    """A look was refused because it would have gone beyond the privacy budget."""


def delta_of(mu: float, epsilon: float) -> float:
    """The smallest delta for which looks of total parameter `mu` are (epsilon, delta) private.

    Parameters
    ----------
    mu : float
        Square root of the sum of mu^2 over all looks.
    epsilon : float
        The privacy loss that may be exceeded with probability delta.

    Returns
    -------
    delta : float

    Examples
    --------
    >>> from unpooled.privacy.accountant import delta_of
    >>> f"{delta_of(1.0, 4.0):.3e}"
    '4.712e-05'
    """
    if mu <= 0:
        return 0.0
    above = float(log_ndtr(mu / 2 - epsilon / mu))
    below = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if below >= above:
        return 0.0
    return exp(above + log1p(-exp(below - above)))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon for which looks of total parameter `mu` are (epsilon, delta) private.

    Parameters
    ----------
    mu : float
        Square root of the sum of mu^2 over all looks.
    delta : float
        The probability with which epsilon may be exceeded.

    Returns
    -------
    epsilon : float

    Examples
    --------
    >>> from unpooled.privacy.accountant import epsilon_of
    >>> round(epsilon_of(1.0, 1e-6), 4)
    4.8866
    """
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(mu, high) > delta:
        high *= 2
    return float(brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, high, xtol=1e-12))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest total parameter that is still (epsilon, delta) private: the inverse of `epsilon_of`.

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        Between 0 and 1.

    Returns
    -------
    mu : float

    Examples
    --------
    >>> from unpooled.privacy.accountant import epsilon_of, mu_of
    >>> round(epsilon_of(mu_of(2.0, 1e-6), 1e-6), 9)
    2.0
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if delta_of(LARGEST_MU, epsilon) <= delta:
        return LARGEST_MU
    return float(brentq(lambda mu: delta_of(mu, epsilon) - delta, 1e-12, LARGEST_MU, xtol=1e-15, rtol=1e-14))


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that allows nothing or everything."""
    if not (is_number(epsilon) and 0 < epsilon < float("inf")):
        raise BadParameter(f"epsilon={epsilon!r} must be above 0 and finite: 0.5 to 4 are usual")


def check_delta(delta: float, rows: float = 1.0) -> None:
    """Refuse a delta of 1 / rows or more, with which whole rows could be published."""
    if not (is_number(delta) and 0 < delta < 1):
        raise BadParameter(f"delta={delta!r} must be above 0 and far below 1 / rows: 1e-6 is usual")
    if delta * rows >= 1:
        text = f"delta={delta!r} must be below 1 / rows, and there are at least {1 / delta:.0f} rows"
        raise BadParameter(f"{text}: with such a delta a row could be published, take one tenth of 1 / rows or less")


class Spent(NamedTuple):
    """What was spent so far."""

    mu2: float
    epsilon: float
    looks: int


class Accountant:
    """Counts looks against a budget of epsilon at a delta, and refuses the look that would exceed it.

    Parameters
    ----------
    epsilon : float
        The privacy loss that all looks together may reach.
    delta : float
        The probability with which it may be exceeded.

    Attributes
    ----------
    mu2_total : float
        What the sum of mu^2 may reach.
    charges : list of float
        The mu^2 of every look so far.

    Examples
    --------
    >>> from unpooled.privacy.accountant import Accountant
    >>> budget = Accountant(epsilon=1.0, delta=1e-6)
    >>> budget.charge(budget.mu2_total / 2)
    >>> print(budget)
    epsilon 0.69 of 1.0 spent (delta 1e-06), 1 look
    """

    def __init__(self, epsilon: float, delta: float):
        """An account of `epsilon` and `delta` from which nothing was spent."""
        self.mu2_total = mu_of(epsilon, delta) ** 2
        self.epsilon, self.delta = float(epsilon), float(delta)
        self.charges: list[float] = []

    @property
    def mu2_spent(self) -> float:
        """The sum of mu^2 of all looks so far."""
        return sum(self.charges)

    @property
    def mu2_left(self) -> float:
        """What the mu^2 of further looks may add up to."""
        return max(self.mu2_total - self.mu2_spent, 0.0)

    @property
    def spent(self) -> Spent:
        """The sum of mu^2, the epsilon that it means, and the number of looks."""
        return Spent(self.mu2_spent, epsilon_of(sqrt(self.mu2_spent), self.delta), len(self.charges))

    def check(self, mu2: float) -> None:
        """Refuse a look that would exceed the budget, before any row is read."""
        if not (is_number(mu2) and 0 < mu2 < float("inf")):
            raise BadParameter(f"mu2={mu2!r} must be above 0: it is what a look costs")
        if self.mu2_spent + mu2 > self.mu2_total * (1 + ROUNDING):
            after = epsilon_of(sqrt(self.mu2_spent + mu2), self.delta)
            text = f"this look would bring epsilon from {self.spent.epsilon:.4g} to {after:.4g}"
            raise BudgetSpent(f"{text}, and {self.epsilon:g} is allowed: ask for less, or raise epsilon=")

    def charge(self, mu2: float) -> None:
        """Write a look down; `BudgetSpent` if it is too much."""
        self.check(mu2)
        self.charges.append(float(mu2))

    def __str__(self) -> str:
        """What is spent, in one line."""
        looks = f"{len(self.charges)} look{'' if len(self.charges) == 1 else 's'}"
        return f"epsilon {self.spent.epsilon:.2f} of {self.epsilon} spent (delta {self.delta:g}), {looks}"
