"""Random features whose inner products converge to known kernels. Sends nothing.

With m draws, `features(x) @ features(x').T` is an unbiased estimate of the kernel with an error of order 1 / sqrt(m).

References
----------
Rahimi, Recht, Random features for large-scale kernel machines, NeurIPS 2007.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array, namespace

SPECTRA = {"rbf": np.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}  # smoothness nu


def frequencies(spectrum: str, m: int, d: int, rng: np.random.Generator) -> np.ndarray:  # (d, m)
    """Draws from the spectral density of a kernel of length scale 1: normal, or Student t with 2 nu degrees."""
    normal = rng.standard_normal((d, m))
    nu = SPECTRA[spectrum]
    return normal if np.isinf(nu) else normal / np.sqrt(rng.chisquare(2 * nu, size=m) / (2 * nu))


def waves(projected: Array) -> Array:
    """Cosines and sines of projections (..., n, m), scaled so that each row has length 1: (..., n, 2 m).

    The kernel is stationary: the one whose spectral density the frequencies are drawn from.
    """
    xp = namespace(projected)
    return xp.concatenate([xp.cos(projected), xp.sin(projected)], -1) / projected.shape[-1] ** 0.5


def exponentials(projected: Array) -> Array:
    """exp of projections (..., n, m) on normal draws; the kernel is exp(|x + x'|^2 / 2) = E[exp(w'x) exp(w'x')]."""
    return namespace(projected).exp(projected) / projected.shape[-1] ** 0.5


def powers(degree: int, m: int, d: int, rng: np.random.Generator) -> np.ndarray:  # (m, d + 1)
    """Multinomial draws of the powers of random monomials.

    Of the `degree` factors, half are the constant on average; the others are spread evenly over the columns.
    """
    return rng.multinomial(degree, [0.5, *[0.5 / d] * d], size=m).astype(np.float64)


def products(x: Array, powers: Array, constant: float) -> Array:
    """Monomials (..., n, m) of [sqrt(2 c), sqrt(2 d) x] with drawn powers (m, d + 1); the kernel is (x'x' + c)^degree.

    x may be negative.
    """
    m = powers.shape[0]
    d = x.shape[-1]
    out: Array = (2 * constant) ** (0.5 * powers[:, 0]) / m**0.5
    for j in range(d):
        out = out * ((2 * d) ** 0.5 * x[..., j : j + 1]) ** powers[:, j + 1]
    return out
