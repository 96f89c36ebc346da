"""Mixtures, rows and comparisons shared by the tests of the mixture's maths."""

import numpy as np
from scipy.stats import multivariate_normal

from unpooled.maths import gaussian
from unpooled.maths.mixture import Params, Stats

SHAPES = gaussian.SHAPES


def natural(covs, shape):
    """Full covariances (k, d, d), averaged to the shape and packed."""
    return gaussian.pack_covs(gaussian.reshape_covs(covs, shape), shape)


def random_mixture(rng, k, d, shape, separation=1.5):
    factors = np.eye(d) + 0.3 * rng.normal(size=(k, d, d))
    return Params(
        rng.dirichlet(np.full(k, 5.0)),
        separation * rng.normal(size=(k, d)),
        natural(factors @ factors.swapaxes(1, 2), shape),
    )


def rows_with_holes(rng, n, d, share=0.3):
    x = 1.5 * rng.normal(size=(n, d))
    x[rng.random((n, d)) < share] = np.nan
    return x


def sample(rng, params, shape, n):
    y = rng.choice(len(params.weights), n, p=params.weights)
    factors = np.linalg.cholesky(gaussian.full_covs(params, shape))
    return params.means[y] + np.einsum("nij,nj->ni", factors[y], rng.normal(size=(n, params.means.shape[1])))


def close(ours, theirs, rtol):
    """Every leaf equal relative to its own largest entry."""
    for a, b in zip(ours, theirs):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(np.abs(b).max(), 1e-300))


# ---- the plain formulas, one row at a time ----


def one_row(x, covs, params):
    """log joint (k,), E[x] (k, d) and Cov[x] (k, d, d) of one row: conditional Gaussians as in a textbook."""
    o, u = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    joints, means, spreads = [], [], []
    for weight, mean, cov in zip(params.weights, params.means, covs):
        density = multivariate_normal(mean[o], cov[np.ix_(o, o)]).logpdf(x[o]) if len(o) else 0.0
        gain = cov[np.ix_(u, o)] @ np.linalg.inv(cov[np.ix_(o, o)])
        full, spread = x.copy(), np.zeros_like(cov)
        full[u] = mean[u] + gain @ (x[o] - mean[o])
        spread[np.ix_(u, u)] = cov[np.ix_(u, u)] - gain @ cov[np.ix_(o, u)]
        joints.append(np.log(weight) + density)
        means.append(full)
        spreads.append(spread)
    return np.array(joints), np.array(means), np.array(spreads)


def oracle(params, x, w, shape):
    covs = gaussian.full_covs(params, shape)
    k, d = params.means.shape
    n, first, second, loglik = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d)), 0.0
    for row, weight in zip(x, w):
        if weight == 0:
            continue
        joint, mean, spread = one_row(row, covs, params)
        total = np.logaddexp.reduce(joint)
        r = weight * np.exp(joint - total)
        off = mean - params.means
        n += r
        first += r[:, None] * off
        second += r[:, None, None] * (off[:, :, None] * off[:, None, :] + spread)
        loglik += weight * total
    packed = gaussian.pack_covs(gaussian.reshape_covs(second, shape) * (k if shape == "tied" else 1), shape)
    return Stats(n, first, packed, np.array(loglik), np.array(w.sum()))
