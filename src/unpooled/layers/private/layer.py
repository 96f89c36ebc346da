"""Differential privacy in process: every SUM gets noise, is charged to a budget of epsilon, and is refused beyond it.

For those who hold all the data, and to simulate what nodes with masked sums would give. Only questions that have declared how far one
row can move their answer are asked; GATHER and TELL are refused. Sends what the question sends, and nothing of its own.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.client import STEP, Ask, Client, client
from unpooled.errors import BadData, BadParameter, DataWarning
from unpooled.federation import Federation, Layer
from unpooled.layers.private.look import wanted_mu2, without_wish
from unpooled.parameters import flag
from unpooled.privacy.accountant import Accountant, BudgetSpent, check_delta, check_epsilon, mu_of
from unpooled.privacy.clipping import parse_bounds
from unpooled.privacy.noise import release, request_digest, sigma_of
from unpooled.privacy.sensitivity import sensitivity_of
from unpooled.tree import Tree

CHARGES = "private"  # the key of the charges in a snapshot
LEAST_LEFT = 1e-3  # of the budget: less than this is what rounding left
MANY_OUTSIDE = 0.01  # a share of values outside of a column's bounds that is worth a warning

BOOKS: dict[str, Book] = {}  # of this process, by an id that says nothing; secrets are never sent


class Book:
    """The secret of a layer, and which exact answers it has already paid for."""

    def __init__(self, secret: bytes):
        """The noise of one server: drawn from `secret` and the question, so that a repeated look has the same noise."""
        self.secret = secret
        self.known: set[bytes] = set()
        self.fresh = False

    def noisy(self, answer: Tree, name: str, sigma: float, request: bytes) -> Tree:
        """The answer with noise; `fresh` says whether it tells anything new."""
        found = release(answer, request, self.secret, sigma, name)
        self.fresh = self.fresh or found.name not in self.known
        self.known.add(found.name)
        return found.answer


@client("looks.noise_at_client", STEP, batched=False)
def noise_at_client(up: Tree, client: Client, *, book: str, sigma: float, request: str) -> Tree:
    """The answer of one client with noise of its own."""
    if book not in BOOKS:
        raise BadParameter("this layer adds noise in its own process only: nodes add theirs by their own policy")
    return BOOKS[book].noisy(up, client.name, sigma, bytes.fromhex(request))


class Private(Layer):
    """A federation whose sums are differentially private: one row, added or removed, changes little of what anybody sees.

    Parameters
    ----------
    inner : Federation
        The clients, in this process.
    epsilon : float
        What all fits together may cost.
    delta : float
        The probability with which epsilon may be exceeded; below 1 / rows.
    bounds : dict of column to (low, high), or array (d, 2)
        Public bounds, from knowledge and not from the data; values outside are moved to the nearest bound. For a regression the dict has
        an entry "y" for the target, or the array has one row more.
    masked : bool, default True
        True: noise is added once to the total, as clients with masked sums could do together. False: every client adds all of the noise,
        which in the total is larger by the square root of the number of clients.
    epsilon_per_fit : float or None, default None
        What one fit may cost at most; None: all that is left.
    secret : bytes or None, default None
        What the noise is drawn from; None: 32 random bytes. Give one only to repeat an experiment, and keep it secret otherwise.

    Attributes
    ----------
    accountant : Accountant
        What was spent; `print(private.accountant)` says it in a sentence.
    bounds : array (d, 2)
    target_bounds : array (2,) or None

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> from unpooled.layers.private import Private
    >>> from unpooled.models.private import ColumnMoments
    >>> ages = np.random.default_rng(0).normal(50, 10, size=(5000, 1))
    >>> private = Private(up.federate({"a": ages[:2000], "b": ages[2000:]}), epsilon=1.0, delta=1e-6, bounds={"0": (0, 110)})
    >>> moments = ColumnMoments().fit(private)
    >>> bool(abs(moments.mean_[0] - 50) < 1)
    True
    >>> print(private.accountant)
    epsilon 1.00 of 1.0 spent (delta 1e-06), 1 look
    """

    def __init__(
        self,
        inner: Federation,
        *,
        epsilon: float,
        delta: float,
        bounds: Any = None,
        masked: bool = True,
        epsilon_per_fit: float | None = None,
        secret: bytes | None = None,
    ):
        super().__init__(inner)
        check_epsilon(epsilon)
        if epsilon_per_fit is not None:
            check_epsilon(epsilon_per_fit)
        flag("masked", masked)
        self.masked, self.epsilon_per_fit = masked, epsilon_per_fit
        clients = inner.here()
        check_delta(delta, sum(len(c.x) for c in clients))
        self.bounds, self.target_bounds = _bounds(bounds, inner, clients)
        check_weights(clients)
        warn_outside(clients, self.bounds)
        self.accountant = Accountant(epsilon, delta)
        self.book = Book(os.urandom(32) if secret is None else bytes(secret))
        self._book_id = os.urandom(8).hex()
        BOOKS[self._book_id] = self.book

    @property
    def noise_factor(self) -> float:
        """By how much the noise of a total exceeds that of one look: the square root of the clients that add it."""
        return 1.0 if self.masked else float(np.sqrt(len(self.names)))

    @property
    def mu2_for_fit(self) -> float:
        """What the looks of one fit may cost together; refused when next to nothing is left."""
        left = self.accountant.mu2_left
        if left < LEAST_LEFT * self.accountant.mu2_total:
            raise BudgetSpent(
                f"{self.accountant}: nothing is left for another fit, raise epsilon= or set epsilon_per_fit="
            )
        if self.epsilon_per_fit is None:
            return left
        return min(left, mu_of(self.epsilon_per_fit, self.accountant.delta) ** 2)

    def sum(self, ask: Ask, down: Tree) -> Tree:
        """The noisy total of a private question; refused, and nothing charged, if it is not one or costs too much."""
        sensitivity = sensitivity_of(ask.name)
        mu2 = wanted_mu2(ask)
        if mu2 is None:
            raise BadParameter(f"{ask.name} was asked without saying what it may cost: use unpooled.layers.private")
        plain = without_wish(ask)
        sigma = sigma_of(mu2, sensitivity)
        request = request_digest(ask.name, ask.options, down, mu2)
        if not self._paid(request):
            self.accountant.check(mu2)
        self.book.fresh = False
        noisy = self._noisy_total(plain, down, sigma, request)
        if self.book.fresh:
            self.accountant.charge(mu2)
            self.book.known.add(request)
        return noisy

    def _noisy_total(self, plain: Ask, down: Tree, sigma: float, request: bytes) -> Tree:
        """The total with noise: added once where totals are masked, else by every client to its own answer."""
        if self.masked:
            return self.book.noisy(self.inner.sum(plain, down), "", sigma, request)
        step: dict[str, Any] = {"book": self._book_id, "sigma": sigma, "request": request.hex()}
        return self.inner.sum(plain.then(noise_at_client, **step), down)

    def _paid(self, request: bytes) -> bool:
        """Whether this very request was answered before: about the same rows it then costs nothing."""
        return request in self.book.known

    def gather(self, ask: Ask, down: Tree) -> dict[str, Tree]:
        """Refused: single answers would leave."""
        raise BadParameter(f"{ask.name} gathers single answers, which Private does not let out: fit a private model")

    def tell(self, ask: Ask, down: Tree) -> None:
        """Refused: what clients keep is not accounted for."""
        raise BadParameter(f"{ask.name} changes what clients keep, which Private does not allow: fit a private model")

    def snapshot(self) -> Tree:
        """The inner state and what has been charged, for a checkpoint."""
        return {**self.inner.snapshot(), CHARGES: {"mu2": np.array(self.accountant.charges)}}

    def restore(self, saved: Tree) -> None:
        """Charges are never forgotten: those of a checkpoint are taken over if they are more than are known here."""
        saved = dict(saved)
        charges = [float(c) for c in np.atleast_1d(saved.pop(CHARGES, {"mu2": []})["mu2"])]
        if len(charges) > len(self.accountant.charges):
            self.accountant.charges = charges
        self.inner.restore(saved)


# ---- checks of what is in this process; nothing is charged for what they refuse ----


def _bounds(bounds: Any, inner: Federation, clients: list[Client]) -> tuple[np.ndarray, np.ndarray | None]:
    """Bounds of the columns, and those of the target if they are given."""
    columns = inner.columns
    width = clients[0].x.shape[-1] if clients else _length(bounds)
    names = [str(c) for c in columns] if columns is not None else [str(i) for i in range(width)]
    has_target = bool(clients) and clients[0].y is not None
    if has_target and isinstance(bounds, dict) and "y" in bounds and "y" not in names:
        found = parse_bounds(bounds, [*names, "y"], width + 1)
        return found[:-1], found[-1]
    if has_target and not isinstance(bounds, dict) and _length(bounds) == width + 1:
        found = parse_bounds(bounds, [*names, "y"], width + 1)
        return found[:-1], found[-1]
    return parse_bounds(bounds, names, width), None


def _length(bounds: Any) -> int:
    """How many bounds there are, 0 for a single number."""
    return len(bounds) if hasattr(bounds, "__len__") else 0


def check_weights(clients: list[Client]) -> None:
    """Refuse weights with which one row would count more than once."""
    for c in clients:
        w = to_numpy(c.w)
        if w.size and float(w.max()) > 1:
            text = f"client {c.name!r} has row weights up to {float(w.max()):g}, and a private sum counts a row once at most"
            raise BadData(f"{text}: scale the weights to between 0 and 1")


def warn_outside(clients: list[Client], bounds: np.ndarray) -> None:
    """Warn whoever holds the rows that bounds cut many of them off."""
    if not clients:
        return
    x = np.concatenate([to_numpy(c.x).astype(np.float64) for c in clients])
    outside = ((x < bounds[:, 0]) | (x > bounds[:, 1])).mean(0)
    column = int(np.argmax(outside))
    if outside[column] > MANY_OUTSIDE:
        text = f"{outside[column]:.0%} of column {column} lies outside of its bounds and is moved to the nearest one"
        warnings.warn(f"{text}: give wider bounds, from knowledge", DataWarning, stacklevel=3)
