"""The feature map of FedBNR's last layer: more features than the kernel was learned with, at its length scales.

With `features="auto"` it is the sum of four kernels of `unpooled.maths.sum_of_kernels`. One SUM (`fedbnr.effects`) tells where
columns bend y, so that knots go there, and how columns go together, so that the points of the Gaussian kernels can be drawn where rows are.
How much each kernel counts follows from the evidence of the last layer's own sums: no map is compared with another in a round.
"""

from __future__ import annotations

import numpy as np

from unpooled import tree
from unpooled.arrays import doubles
from unpooled.federation import Federation
from unpooled.maths import bayes_linear, sum_of_kernels
from unpooled.maths.bayes_linear import Stats
from unpooled.maths.feature_maps import Kernel, Leaves, Spec, start
from unpooled.maths.sum_of_kernels import Parts
from unpooled.models.fedbnr.budget import Size, n_bins, n_features
from unpooled.models.fedbnr.effects import Bins, Effects, curvature, effects, shared_out
from unpooled.models.fedbnr.marginals import Marginals, bin_edges, drawn_rows, hinge_means, knots, most_knots
from unpooled.models.fedbnr.settled import settled
from unpooled.models.regression import Design

SUM = "sum of kernels"
SCALED = ("ard", "rff", "additive")  # maps whose scales do not depend on the frequencies drawn
HINGES = 0.35  # share of the features that are hinges, at most
KNOTS = 6  # per column on average, at most
MIN_POINTS = 20


def with_theta(design: Design, theta: Leaves) -> Design:
    """The design with other parameters of its kernel."""
    return design._replace(kernel=design.kernel._replace(theta=theta))


def more_frequencies(learned: Design, spec: Spec, seed: int) -> Design:
    """The map of a specification, with other frequencies, at the scales that were learned."""
    kernel = start(spec, len(learned.scaling.x_mean), np.random.default_rng(seed))
    return learned._replace(kernel=kernel._replace(theta=learned.kernel.theta))


def sum_map(fed: Federation, learned: Design, known: Marginals, size: Size, seed: int) -> Design:
    """The sum of kernels with as many features as the budget allows, at the length scales that were learned: one SUM."""
    seen = tree.map(doubles, fed.sum(effects, Bins(learned.scaling, bin_edges(known, n_bins(size)))))
    log_scale = learned.kernel.theta["log_scale"]
    parts = _placed(known, seen, np.exp(log_scale), n_features(size), seed)
    theta = {"log_scale": log_scale, "weights": np.ones(sum_of_kernels.N_BLOCKS)}
    return learned._replace(kernel=Kernel(theta, parts._asdict()))


def _placed(known: Marginals, seen: Effects, length: np.ndarray, k: int, seed: int) -> Parts:
    """Knots where single columns bend y, and points where rows are likely: k features in all."""
    d = len(length)
    wanted = shared_out(curvature(seen), most_knots(known), min(int(HINGES * k), KNOTS * d))
    by_column = knots(known, wanted)
    columns = np.repeat(np.arange(d), [len(k) for k in by_column])
    at = np.concatenate(by_column)
    second_moments = settled(bayes_linear.unpack(seen.moments, d) / max(seen.rows[0].sum(), 1.0))
    rows = drawn_rows(known, second_moments, seed)
    n_points = max(k - d - len(at), MIN_POINTS)
    points = sum_of_kernels.choose_points(length, rows, n_points, np.random.default_rng([seed, 2]))
    shorter = sum_of_kernels.SHORTER * length
    n_left = n_points - len(points)
    fine = sum_of_kernels.choose_points(shorter, rows, n_left, np.random.default_rng([seed, 3]))
    return Parts(columns.astype(np.float64), at, hinge_means(known, columns, at), points, fine)


def weigh(design: Design, stats: Stats) -> tuple[Design, Stats]:
    """(design, sums) with every kernel of the sum scaled as the evidence wants it."""
    block = sum_of_kernels.blocks(len(design.scaling.x_mean), Parts(**design.kernel.omega))
    scales = bayes_linear.block_scales(stats, block)
    scales = np.pad(scales / scales.max(), (0, sum_of_kernels.N_BLOCKS - len(scales)))  # the last block may be empty
    theta = design.kernel.theta | {"weights": scales}
    return with_theta(design, theta), bayes_linear.scaled(stats, scales[block])
