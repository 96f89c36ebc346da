"""FedMissEM: complete a sites x dates table that many observers, spread over clients, have seen in parts.

Visits (site, date, value) stay where they are. A round is one SUM: for each site, or each date in the next round, a gradient and a
small curvature of its coefficients; no cell and no visit leaves a client. This maximises a penalised likelihood by alternating Newton
steps; the paper's EM on filled-in tables is `FedEM(family=LowRank(...))`, whose penalty is another, so the two need not end alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.errors import BadData, BadParameter
from unpooled.estimator import Estimator, Info
from unpooled.federation import Federation
from unpooled.maths.imputation import hidden
from unpooled.models.fedmissem import bilinear
from unpooled.models.fedmissem.bilinear import Factors, Half
from unpooled.models.fedmissem.smoothing import smooth
from unpooled.parameters import at_least
from unpooled.tree import message

RANKS = (0, 1, 2, 3)
CLEARLY = 2.0  # standard errors
Z90 = 1.6448536269514722


@message("fedmissem.Extent")
class Extent(NamedTuple):
    sites: Float[Array, ""]  # the largest number, plus one
    dates: Float[Array, ""]
    rows: Float[Array, "", ">=0 rows"]
    bad: Float[Array, "", ">=0 rows"]
    value: Float[Array, ""]
    square: Float[Array, "", ">=0"]


@message("fedmissem.Held")
class Held(NamedTuple):
    """Over visits held back, for each candidate."""

    visits: Float[Array, "", ">=0 rows"]
    deviance: Float[Array, "c", ">=0"]
    products: Float[Array, "c c"]  # of two candidates' deviances: how sure their difference is


@message("fedmissem.Width")
class Width(NamedTuple):
    """The fit, and how uncertain its coefficients are."""

    factors: Factors
    sites: Float[Array, "j q q"]
    dates: Float[Array, "l q q"]


@message("fedmissem.Seen")
class Seen(NamedTuple):
    """By date, over the visits."""

    value: Float[Array, "l"]
    mean: Float[Array, "l"]
    noise: Float[Array, "l", ">=0"]  # variance of a cell, up to the dispersion
    sites: Float[Array, "l", ">=0"]  # variance through the sites' coefficients
    pull: Float[Array, "l q"]  # derivative of the total by the date's coefficients


@message("fedmissem.Candidate")
class Candidate(NamedTuple):
    factors: Factors
    best: Factors  # before the last step, to go back half the way if it was too long
    loss: float  # of best
    dispersion: float
    sites: np.ndarray  # (j, q, q)
    dates: np.ndarray  # (l, q, q)
    settled: bool


@message("fedmissem.State")
class State(NamedTuple):
    candidates: tuple[Candidate, ...]
    chosen: bool
    held: np.ndarray  # (candidates,) mean deviance of held-out visits
    round: int


# ---- questions ----


@client("fedmissem.extent", GATHER, batched=False)
def extent(nothing: None, client: Client, *, cells: str, trials: int) -> Extent:
    """How many sites, dates and visits there are, how many visits cannot be, and the sums of values and of their squares."""
    x, there = to_numpy(client.x).astype(np.float64), to_numpy(client.w) > 0
    x = x[there] if x.shape[1] == 3 else np.full((int(there.sum()), 3), np.nan)
    whole = (x[:, :2] >= 0).all(axis=1) & (x[:, :2] == np.floor(x[:, :2])).all(axis=1)
    counts = cells == "gaussian" or (x[:, 2] >= 0) & (x[:, 2] == np.floor(x[:, 2]))
    fine = whole & counts & np.isfinite(x[:, 2]) & ((cells != "binomial") | (x[:, 2] <= trials))
    good = x[fine] if fine.any() else np.zeros((1, 3))
    numbers = (*(good[:, :2].max(axis=0) + 1), len(x), (~fine).sum(), good[:, 2].sum(), (good[:, 2] ** 2).sum())
    return Extent(*(np.asarray(float(n)) for n in numbers))


@client("fedmissem.regress", SUM, adds=True, batched=False)
def regress(
    down: tuple[Factors, ...], client: Client, *, side: str, cells: str, trials: int, hide: float
) -> tuple[Half, ...]:
    """What a regression on the other side's factors needs, for every site or date and every candidate."""
    x, w = _visits(client, hide, kept=True)
    return tuple(bilinear.half(factors, side, x, w, cells, trials) for factors in down)


@client("fedmissem.judge", SUM, adds=True, batched=False)
def judge(down: tuple[Factors, ...], client: Client, *, cells: str, trials: int, hide: float) -> Held:
    x, w = _visits(client, hide, kept=False)
    site, date = x[:, 0].astype(np.int64), x[:, 1].astype(np.int64)
    means = (bilinear.mean(bilinear.theta_at(f, site, date), cells, trials) for f in down)
    off = np.stack([bilinear.deviance(x[:, 2], m, cells, trials) for m in means])  # (c, n)
    return Held(np.asarray(w.sum()), off @ w, (off * w) @ off.T)


@client("fedmissem.seen", SUM, adds=True, batched=False)
def seen(down: Width, client: Client, *, cells: str, trials: int) -> Seen:
    x, w = _visits(client, 0.0, kept=True)
    site, date = x[:, 0].astype(np.int64), x[:, 1].astype(np.int64)
    n_dates = len(down.factors.right)
    mean, noise, through, pull = _cell_moments(down, site, date, cells, trials)
    by_date = lambda a: np.bincount(date, w * a, n_dates)  # noqa: E731
    pulls = np.stack([by_date(column) for column in pull.T], axis=1)
    return Seen(by_date(x[:, 2]), by_date(mean), by_date(noise), by_date(through), pulls)


def _cell_moments(down: Width, site: np.ndarray, date: np.ndarray, cells: str, trials: int) -> tuple[np.ndarray, ...]:
    """Of each cell: mean, variance up to the dispersion, variance through its site's coefficients, pull of its date's."""
    f = down.factors
    mean = bilinear.mean(bilinear.theta_at(f, site, date), cells, trials)
    slope = bilinear.rate(mean, cells, trials)
    z = f.right[date][:, bilinear.learned("left", f.left.shape[1])]
    through = slope**2 * np.einsum("np,npq,nq->n", z, down.sites[site], z)
    pull = slope[:, None] * f.left[site][:, bilinear.learned("right", f.left.shape[1])]
    return mean, bilinear.variance(mean, cells, trials), through, pull


def _visits(client: Client, hide: float, kept: bool) -> tuple[np.ndarray, np.ndarray]:
    """The visits, or those that are held back to choose by, or the others."""
    x, w = to_numpy(client.x).astype(np.float64), to_numpy(client.w).astype(np.float64)
    if hide:
        back = hidden(np.column_stack([x, x[:, 0]]), hide)[:, 0]
        x, w = (x[~back], w[~back]) if kept else (x[back], w[back])
    return x, w


class FedMissEM(Estimator):
    """Counts, numbers or shares of successes at sites and dates, most of them missing, as a table of low rank.

    rank : of what is left after the effects of sites and of dates; None chooses 0 to 3 by visits that clients hold back:
        the least that is not clearly worse than the best.
    family : "gaussian", "poisson", "geometric" (counts that stray in proportion to their mean, as those of flocks do) or "binomial"
        (out of `trials`); the dispersion is estimated.
    penalty : of the squared coefficients, against the dispersion: sites with few visits are drawn to the mean site.
    n_sites, n_dates : the table's sides; None for what visits reach.
    """

    def __init__(
        self,
        rank: int | None = None,
        family: str = "gaussian",
        *,
        penalty: float = 1.0,
        trials: int = 1,
        n_sites: int | None = None,
        n_dates: int | None = None,
        hide: float = 0.1,
        choose_iter: int = 100,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: Any = 0,
    ):
        self.rank = rank
        self.family = family
        self.penalty = penalty
        self.trials = trials
        self.n_sites = n_sites
        self.n_dates = n_dates
        self.hide = hide
        self.choose_iter = choose_iter
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def check(self, fed: Federation) -> None:
        if self.family not in bilinear.CELLS:
            raise BadParameter(f"family={self.family!r} is not known: use one of {', '.join(bilinear.CELLS)}")
        if self.rank is not None:
            at_least("rank", self.rank, 0)
        at_least("trials", self.trials, 1)
        if not self.penalty > 0:
            raise BadParameter(f"penalty={self.penalty!r} must be above 0: a site without visits needs it")
        if not 0 < self.hide <= 0.5:
            raise BadParameter(
                f"hide={self.hide!r} must be above 0 and at most 0.5: it is the share of visits held back"
            )

    # ---- fitting ----

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        found = fed.gather(extent.using(cells=self.family, trials=self.trials), None)
        self._refuse(found)
        n_sites, n_dates = (self._side(name, [getattr(e, name) for e in found.values()]) for name in ("sites", "dates"))
        rows, value, square = (
            sum(float(getattr(e, name)) for e in found.values()) for name in ("rows", "value", "square")
        )
        level, spread = value / rows, max(square / rows - (value / rows) ** 2, 1e-12)
        size = np.sqrt(spread) if self.family == "gaussian" else 1.0
        start = bilinear.link(level, self.family, self.trials)
        ranks = [r for r in (RANKS if self.rank is None else (self.rank,)) if r < min(n_sites, n_dates)]
        made = [bilinear.begin(n_sites, n_dates, r, start, size, rng) for r in ranks]
        dispersion = spread if self.family == "gaussian" else 1.0
        return State(tuple(_fresh(f, dispersion) for f in made), len(made) == 1, np.full(len(made), np.nan), 0)

    def _refuse(self, found: dict[str, Extent]) -> None:
        wants = {"gaussian": "a number", "binomial": f"a count up to trials={self.trials}"}.get(self.family, "a count")
        for name, e in found.items():
            if float(e.bad):
                raise BadData(
                    f"{float(e.bad):.0f} of {float(e.rows):.0f} rows of client {name!r} are no visits: "
                    f"each is (site, date, value), sites and dates whole numbers from 0, the value {wants}"
                )

    def _side(self, name: str, ends: list) -> int:
        given, reached = getattr(self, f"n_{name}"), int(max(float(e) for e in ends))
        if given is not None and given < reached:
            raise BadParameter(
                f"n_{name}={given} is too small: a visit has number {reached - 1}, so give at least {reached}"
            )
        return given or reached

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        if not state.chosen and (state.round >= self.choose_iter or all(c.settled for c in state.candidates)):
            return self._choose(fed, state)
        side = ("right", "left")[state.round % 2]
        how = {"side": side, "cells": self.family, "trials": self.trials}
        ask = regress.using(hide=0.0 if state.chosen else self.hide, **how)
        found = fed.sum(ask, tuple(c.factors for c in state.candidates))
        moved = tuple(self._move(c, side, h) for c, h in zip(state.candidates, found))
        info = {"deviance": float(found[0].deviance / found[0].visits), "dispersion": moved[0].dispersion}
        return State(moved, state.chosen, state.held, state.round + 1), info

    def _move(self, c: Candidate, side: str, found: Half) -> Candidate:
        """A Newton step of one side; or half the way back, if the last one was too long."""
        loss = float(found.deviance) / c.dispersion + bilinear.penalised(c.factors, self.penalty)
        if loss > c.loss * (1 + 1e-9):
            middle = Factors(*((a + b) / 2 for a, b in zip(c.best, c.factors)))
            return c._replace(factors=middle)
        fitted = (("left", c.sites), ("right", c.dates))
        free = float(found.visits) - sum(bilinear.freedom(s, cov, self.penalty) for s, cov in fitted)
        dispersion = max(float(found.pearson) / max(free, 0.1 * float(found.visits)), 1e-12)
        dispersion = max(dispersion, 1.0) if self.family in ("poisson", "binomial") else dispersion
        factors, covariance = bilinear.newton(c.factors, side, found, dispersion, self.penalty)
        settled = c.loss - loss < self.tol * loss and abs(dispersion / c.dispersion - 1) < 1e-3
        again = float(found.deviance) / dispersion + bilinear.penalised(c.factors, self.penalty)
        widths = {"sites" if side == "left" else "dates": covariance}
        return c._replace(factors=factors, best=c.factors, loss=again, dispersion=dispersion, settled=settled, **widths)

    def _choose(self, fed: Federation, state: State) -> tuple[State, Info]:
        ask = judge.using(cells=self.family, trials=self.trials, hide=self.hide)
        found = fed.sum(ask, tuple(c.best for c in state.candidates))
        held = to_numpy(found.deviance) / max(float(found.visits), 1e-300)
        best = state.candidates[_simplest(found)]
        fresh = best._replace(factors=best.best, loss=np.inf, settled=False)
        return State((fresh,), True, held, 0), {"held_deviance": float(held.min())}

    def done(self, state: State, history: list[Info]) -> bool:
        return state.chosen and state.round > 4 and all(c.settled for c in state.candidates)

    # ---- the result ----

    def finish(self, fed: Federation, state: State) -> None:
        best = state.candidates[0]
        self.sites_, self.dates_ = best.best
        self.rank_, self.dispersion_ = self.sites_.shape[1] - 2, best.dispersion
        self.held_deviance_ = state.held
        self.n_features_in_ = 3
        width = Width(best.best, best.sites, best.dates)
        self.totals_, self.totals_std_ = self._totals(
            width, fed.sum(seen.using(cells=self.family, trials=self.trials), width)
        )

    def _totals(self, width: Width, visited: Seen) -> tuple[np.ndarray, np.ndarray]:
        """By date: what was seen, and the mean of what was not; its deviation by noise and by the coefficients'."""
        n_sites, n_dates = len(self.sites_), len(self.dates_)
        sums = [np.zeros(n_dates), np.zeros(n_dates), np.zeros(n_dates), np.zeros_like(to_numpy(visited.pull))]
        for date in range(n_dates):  # one column of the table at a time
            here = _cell_moments(width, np.arange(n_sites), np.full(n_sites, date), self.family, self.trials)
            for total, part in zip(sums, here):
                total[date] = part.sum(axis=0)
        mean, noise, through, pull = sums
        rest = np.maximum(noise - to_numpy(visited.noise), 0.0), np.maximum(through - to_numpy(visited.sites), 0.0)
        away = pull - to_numpy(visited.pull)
        by_date = np.einsum("lp,lpq,lq->l", away, width.dates, away)
        total = mean + to_numpy(visited.value) - to_numpy(visited.mean)
        return total, np.sqrt(self.dispersion_ * rest[0] + rest[1] + np.maximum(by_date, 0.0))

    def predict(self, X: Any) -> np.ndarray:
        """The mean of cells (site, date); what else a row holds, as the value of a visit, is left aside."""
        check_is_fitted(self, "sites_")
        x = self._cells(X)
        return bilinear.mean(bilinear.theta_at(self._factors(), x[:, 0], x[:, 1]), self.family, self.trials)

    def _cells(self, X: Any) -> np.ndarray:
        """(n, 2) whole numbers: sites and dates that the table has."""
        x = np.asarray(X, np.float64)
        if x.ndim != 2 or x.shape[1] < 2:
            raise BadData(f"cells are rows of (site, date), got shape {x.shape}: give two columns")
        x, ends = x[:, :2], (len(self.sites_), len(self.dates_))
        bad = ~((x >= 0) & (x < ends) & (x == np.floor(x))).all(axis=1)
        if bad.any():
            site, date = x[bad.argmax()]
            raise BadData(
                f"row {bad.argmax()} is (site {site:g}, date {date:g}), no cell of the {ends[0]} sites and {ends[1]} dates: "
                "give whole numbers from 0"
            )
        return x.astype(np.int64)

    def table(self) -> np.ndarray:
        """(sites, dates): the mean of every cell."""
        return bilinear.mean(self.sites_ @ self.dates_.T, self.family, self.trials)

    def plot(self, times: Any = None, ax: Any = None, share: float = 0.3) -> Any:
        """Totals by date with their 90 % band and a smooth trend through a share of the dates at a time; needs matplotlib."""
        import matplotlib.pyplot as plt

        ax = ax or plt.subplots(figsize=(8, 4))[1]
        t = np.arange(len(self.totals_)) if times is None else np.asarray(times, float)
        low, high = (self.totals_ + sign * Z90 * self.totals_std_ for sign in (-1, 1))
        ax.fill_between(t, np.maximum(low, 0.0) if self.family != "gaussian" else low, high, alpha=0.25, lw=0)
        ax.plot(t, self.totals_, lw=0.8)
        ax.plot(t, smooth(t, self.totals_, share), lw=2)
        ax.set(xlabel="date", ylabel="total over sites")
        return ax

    def _factors(self) -> Factors:
        return Factors(self.sites_, self.dates_)


def visits(table: Any) -> np.ndarray:
    """(n, 3) visits of a (sites, dates) table with NaN where nobody was."""
    table = np.asarray(table, np.float64)
    site, date = np.nonzero(~np.isnan(table))
    return np.column_stack([site, date, table[site, date]])


def _simplest(held: Held) -> int:
    """The first candidate that is not clearly worse than the best, by the standard error of their difference."""
    n, products = max(float(held.visits), 1e-300), to_numpy(held.products)
    mean = to_numpy(held.deviance) / n
    b = int(np.argmin(mean))
    worse = mean - mean[b]
    square = (np.diag(products) - 2 * products[b] + products[b, b]) / n
    return int(np.argmax(worse <= CLEARLY * np.sqrt(np.maximum(square - worse**2, 0.0) / n)))


def _fresh(factors: Factors, dispersion: float) -> Candidate:
    q = factors.left.shape[1] - 1
    return Candidate(
        factors,
        factors,
        np.inf,
        dispersion,
        np.zeros((len(factors.left), q, q)),
        np.zeros((len(factors.right), q, q)),
        False,
    )
