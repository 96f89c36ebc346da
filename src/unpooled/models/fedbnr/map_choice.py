"""Which feature map FedBNR keeps: with the frequencies of the last layer, one SUM of statistics and one of errors per map.

Scales are learned with few frequencies, because each round sends the second moments of all features. The last layer has more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled import tree
from unpooled.arrays import to_numpy
from unpooled.federation import Federation
from unpooled.maths import bayes_linear
from unpooled.maths.feature_maps import Leaves, Spec, start
from unpooled.models.fedbnr.budget import LEARNING, budget, frequencies_for
from unpooled.models.fedbnr.kernel_learning import Held, check
from unpooled.models.fedbnr.round_choice import Best
from unpooled.models.regression import Design, statistics
from unpooled.tree import message

AUTO = ("ard", "additive", "additive and ard")  # maps among which features="auto" chooses
SCALED = ("ard", "rff", "additive", "additive and ard")  # maps whose scales do not depend on the frequencies drawn


@message("fedbnr.Kept")
class Kept(NamedTuple):
    """A feature map that has been learned."""

    features: str
    design: Design
    best: Best


def last_frequencies(kept: Kept, n_clients: int, share: float, n_maps: int) -> int:
    """The frequencies that the rest of the budget allows: for the last layer, and for comparing maps."""
    rows = float(kept.best.stats.n) / (1 - share)
    left = (1 - LEARNING) * budget(rows, len(kept.design.scaling.x_mean), n_clients)
    return frequencies_for(left, n_clients * (1 + (n_maps if n_maps > 1 else 0)))


def grown(kept: Kept, spec: Spec, seed: int) -> Kept:
    """The map of a specification, at the scales that were learned for columns together; single columns have fixed scales."""
    kernel = start(spec, len(kept.design.scaling.x_mean), np.random.default_rng(seed))
    theta = kernel.theta if spec["map"] == "additive" else kernel.theta | kept.design.kernel.theta
    if kept.features == spec["map"]:
        theta = kept.design.kernel.theta
    design = kept.design._replace(kernel=kernel._replace(theta=theta))
    return Kept(spec["map"], design, kept.best._replace(theta=theta))


def checked(fed: Federation, kept: Kept, asks: dict[str, Any]) -> Kept:
    """The map with its error on held-out rows."""
    stats = tree.map(to_numpy, fed.sum(statistics.using(**asks), kept.design))
    posterior = bayes_linear.posterior(stats)
    held = tree.map(to_numpy, fed.sum(check.using(**asks), Held(kept.design, posterior)))
    score = float(held.absolute.mean() / max(float(held.n), 1e-300))
    return kept._replace(best=kept.best._replace(stats=stats, score=score))


def with_theta(design: Design, theta: Leaves) -> Design:
    """The design with other parameters of its kernel."""
    return design._replace(kernel=design.kernel._replace(theta=theta))
