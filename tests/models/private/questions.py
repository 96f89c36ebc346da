"""All private questions, and how to make parameters for them that are nasty but can be used."""

from functools import partial

import numpy as np
from adversary import nasty

from unpooled.maths import gaussian
from unpooled.models.private.cells import cell_sums
from unpooled.models.private.choice import advantage
from unpooled.models.private.e_step import whitened_sums
from unpooled.models.private.frame import column_moments
from unpooled.models.private.regression_questions import gradient, joint_moments, residual_counts, second_moments


def covariances(rng, sizes, *, candidates=False):
    """Positive definite matrices of all conditions and sizes: (k, d, d), or (r, k, d, d)."""
    lead = (sizes["r"], sizes["k"]) if candidates else (sizes["k"],)
    d = sizes["d"]
    basis = np.linalg.qr(rng.normal(size=(*lead, d, d)))[0]
    spread = 10.0 ** rng.uniform(*rng.choice([(-1, 1), (-8, 8)]), size=(*lead, d))
    covs = np.einsum("...ij,...j,...kj->...ik", basis, spread, basis)
    return (covs + covs.swapaxes(-1, -2)) / 2


def packed(rng, sizes, *, shape):
    return gaussian.pack_covs(gaussian.reshape_covs(covariances(rng, sizes), shape), shape)


def likely_frame(rng, sizes):
    """Frames that leave rows where components are, so that responsibilities and clipping matter."""
    from unpooled.models.private.frame import Frame

    d = sizes["d"]
    half = 10.0 ** rng.uniform(-1, 3)
    return Frame(np.array([[-half, half]] * d), 0.1 * rng.normal(size=d), 10.0 ** rng.uniform(-2, 0, size=d))


def some_frame(rng, sizes):
    """Half of the time a likely frame, otherwise anything."""
    from unpooled.models.private.frame import Frame

    if rng.random() < 0.7:
        return likely_frame(rng, sizes)
    d = sizes["d"]
    return Frame(nasty((d, 2), rng, 0.1), nasty((d,), rng, 0.1), nasty((d,), rng, 0.1))


CASES = {
    "column_moments": (column_moments, {}),
    "cell_sums": (cell_sums, {"frame": some_frame}),
    "advantage": (advantage, {"frame": some_frame, "covs": partial(covariances, candidates=True)}),
    "joint_moments": (joint_moments, {"target": True}),
    "second_moments": (second_moments, {"target": True, "frame": some_frame}),
    "gradient": (gradient, {"target": True, "frame": some_frame}),
    "residual_counts": (residual_counts, {"target": True, "frame": some_frame}),
} | {
    f"whitened_sums, {shape}": (
        whitened_sums.using(shape=shape),
        {"frame": some_frame, "covs": partial(packed, shape=shape)},
    )
    for shape in gaussian.SHAPES
}
