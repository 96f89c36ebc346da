"""An attack on whole fits: 4,000 pairs of runs on tables that differ in one row, and the epsilon that the best test can prove.

The attacker knows both tables and sees every noisy total; the likelihood ratio of all totals is the best test there is. A lower
bound of epsilon (Clopper-Pearson, 95 %) above the claim would show a mistake; one far below shows little by itself, so the spread
of the test is given as well: it estimates mu, which must not exceed that of the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from _kept import Kept
from scipy.stats import beta

import unpooled as up
from unpooled import tree
from unpooled.federation import Layer
from unpooled.layers.private import Private, wanted_mu2, without_wish
from unpooled.models.private import (
    ColumnMoments,
    PrivateGaussianMixture,
    PrivateKMeans,
    PrivateRegression,
    cell_mixture,
    kmeans,
    start,
)
from unpooled.privacy.accountant import mu_of
from unpooled.privacy.noise import sigma_of

SEEDS = 4000
DIFFERS = "there is no paper; fits are small (100 rows, 2 columns) so that thousands of them can be made."
ROWS, EPSILON, DELTA = 100, 2.0, 1e-4
BOUNDS = np.array([[-6.0, 6.0], [-6.0, 6.0], [-12.0, 12.0]])
CORNER = np.array([6.0, -6.0, 12.0])  # the row that one table has and the other has not
MODELS = {
    "ColumnMoments": lambda seed: ColumnMoments(),
    "PrivateRegression": lambda seed: PrivateRegression(),
    "PrivateKMeans": lambda seed: PrivateKMeans(2, random_state=seed),
    "PrivateGaussianMixture": lambda seed: PrivateGaussianMixture(2, random_state=seed),
}


class Transcript(Layer):
    """Writes down every look: the question, what went down, the noisy total, and the noise."""

    def __init__(self, inner):
        super().__init__(inner)
        self.looks: list[tuple] = []

    def sum(self, ask, down):
        total = super().sum(ask, down)
        seen = tree.flatten(total)
        if not any(np.array_equal(seen, before[2]) for before in self.looks):  # a repeated request tells nothing new
            self.looks.append((without_wish(ask), down, seen, sigma_of(wanted_mu2(ask))))
        return total


def tables() -> tuple[np.ndarray, np.ndarray]:
    """(without the row, with it): columns and, last, the target."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2)) + rng.choice([-2, 2], size=(ROWS, 1))
    without = np.column_stack([x, x.sum(1) + rng.normal(size=ROWS)])
    return without, np.vstack([without, CORNER])


def log_ratio(looks: list[tuple], without, with_row) -> float:
    """log p(all totals | with the row) - log p(all totals | without it)."""
    total = 0.0
    for ask, down, seen, sigma in looks:
        off, on = (tree.flatten(ask(down, fed.here()[0])) for fed in (without, with_row))
        total += (((seen - off) ** 2).sum() - ((seen - on) ** 2).sum()) / (2 * sigma**2)
    return total


def federation(table: np.ndarray, target: bool):
    return up.federate({"a": (table[:, :2], table[:, 2]) if target else table[:, :2]}, threads=1, mode="one by one")


def ratios(name: str, epsilon: float, pairs: int, kept: Kept) -> np.ndarray:
    """The test statistic of every run: (2, pairs), without and with the row."""
    target = name == "PrivateRegression"
    feds = [federation(table, target) for table in tables()]
    bounds = BOUNDS if target else BOUNDS[:2]

    def trial(has_row: int, i: int) -> float:
        secret = f"audit {name} {epsilon} {i} {has_row}".encode().ljust(32, b".")
        watched = Transcript(Private(feds[has_row], epsilon=epsilon, delta=DELTA, bounds=bounds, secret=secret))
        MODELS[name](i).fit(watched)
        return log_ratio(watched.looks, *feds)

    return np.array(
        [[kept.get(f"{name} {epsilon} {i} {h}", partial(trial, h, i)) for i in range(pairs)] for h in (0, 1)]
    )


def proven(found: np.ndarray, delta: float) -> float:
    """The largest epsilon that a threshold, chosen on one half of the runs, proves on the other half."""
    half = found.shape[1] // 2
    choose, judge = found[:, :half], found[:, half:]
    candidates = np.quantile(choose, np.linspace(0.01, 0.99, 99))
    best = candidates[int(np.argmax([_epsilon(choose, t, delta) for t in candidates]))]
    return _epsilon(judge, best, delta)


def _epsilon(found: np.ndarray, threshold: float, delta: float) -> float:
    """max over both sides of log((power - delta) / size), by 97.5 % Clopper-Pearson bounds of each."""
    runs = found.shape[1]
    above = (found > threshold).sum(1)
    bounds = []
    for wrong, right in ((above[0], above[1]), (runs - above[1], runs - above[0])):
        size = beta.ppf(0.975, wrong + 1, runs - wrong) if wrong < runs else 1.0
        power = beta.ppf(0.025, right, runs - right + 1) if right > 0 else 0.0
        bounds.append(np.log(max(power - delta, 1e-300) / size))
    return float(max(0.0, *bounds))


def less_work_at_the_server() -> None:
    """Fewer starts and public points: what the server makes of noisy totals is of no concern here, and fits are made by the thousand."""
    start.STARTS = 2
    start.PUBLIC_POINTS = 100
    start.KMEANS_STEPS = 1
    cell_mixture.ITERATIONS = 10
    kmeans.STARTS = 1


def run(small: bool, seeds: int, out: Path, say: Callable[[str], None]) -> list[dict]:
    less_work_at_the_server()
    pairs, table = 100 if small else seeds, []
    for name in MODELS:
        say(name)
        found = ratios(name, EPSILON, pairs, Kept(out / "trials.jsonl"))
        row = {
            "model": name,
            "pairs of runs": pairs,
            "claimed epsilon": EPSILON,
            "proven epsilon": proven(found, DELTA),
        }
        spread = {"mu of the budget": mu_of(EPSILON, DELTA), "mu by the test": float(found.std(1).mean())}
        table.append(row | spread)
    return table
