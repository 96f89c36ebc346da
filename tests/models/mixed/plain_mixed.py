"""A mixed mixture by EM on pooled rows, in plain loops over rows, components and columns: what the federated one must equal."""

import math

import numpy as np
from scipy.stats import multivariate_normal, nbinom, poisson

GRID = [2.0**e for e in range(4, -8, -1)] + [0.0]


def log_count(x, mean, dispersion):
    if dispersion == 0:
        return poisson.logpmf(x, mean)
    size = 1 / dispersion
    return nbinom.logpmf(x, size, size / (size + mean))


def log_row(row, kinds, starts, theta, k):
    """log density of what is there of a row under component k."""
    g = [j for j, kind in enumerate(kinds) if kind in ("real", "positive")]
    values = [math.log(row[j]) if kinds[j] == "positive" else row[j] for j in g]
    there = [a for a, v in enumerate(values) if not math.isnan(v)]
    total = 0.0
    if there:
        mean = theta["means"][k][there]
        cov = theta["covs"][k][np.ix_(there, there)]
        total += multivariate_normal.logpdf(np.array(values)[there], mean, cov)
    m = 0
    for j, kind in enumerate(kinds):
        if kind == "positive" and not math.isnan(row[j]):
            total -= math.log(row[j])
        if kind in ("binary", "category", "ordered") and not math.isnan(row[j]):
            total += math.log(theta["levels"][k][starts[j] + int(row[j])])
        if kind == "count":
            if not math.isnan(row[j]):
                total += log_count(row[j], theta["mean"][k][m], theta["dispersion"][k][m])
            m += 1
    return total


def em_round(x, kinds, starts, theta, overall, overall_mean, smoothing, reg):
    """(log-likelihood of all rows, the next parameters)."""
    n, big_k = len(x), len(theta["weights"])
    r, loglik = np.zeros((n, big_k)), 0.0
    for i in range(n):
        joint = [math.log(theta["weights"][k]) + log_row(x[i], kinds, starts, theta, k) for k in range(big_k)]
        top = max(joint)
        whole = top + math.log(sum(math.exp(v - top) for v in joint))
        loglik += whole
        for k in range(big_k):
            r[i, k] = math.exp(joint[k] - whole)
    new = {"weights": r.sum(0) / n, "means": [], "covs": [], "levels": [], "mean": [], "dispersion": []}
    for k in range(big_k):
        mean, cov = gaussian_update(x, kinds, r[:, k], theta["means"][k], theta["covs"][k], reg)
        new["means"].append(mean)
        new["covs"].append(cov)
        new["levels"].append(level_update(x, kinds, starts, r[:, k], overall, smoothing))
        means, spreads = count_update(x, kinds, r[:, k], overall_mean, smoothing)
        new["mean"].append(means)
        new["dispersion"].append(spreads)
    return loglik, new


def gaussian_update(x, kinds, r, mean, cov, reg):
    g = [j for j, kind in enumerate(kinds) if kind in ("real", "positive")]
    d = len(g)
    first, second = np.zeros(d), np.zeros((d, d))
    for row, weight in zip(x, r):
        v = np.array([math.log(row[j]) if kinds[j] == "positive" else row[j] for j in g])
        gap = [a for a in range(d) if math.isnan(v[a])]
        there = [a for a in range(d) if not math.isnan(v[a])]
        extra = np.zeros((d, d))
        if gap:
            if there:
                slope = cov[np.ix_(gap, there)] @ np.linalg.inv(cov[np.ix_(there, there)])
                v[gap] = mean[gap] + slope @ (v[there] - mean[there])
                extra[np.ix_(gap, gap)] = cov[np.ix_(gap, gap)] - slope @ cov[np.ix_(there, gap)]
            else:
                v[gap] = mean[gap]
                extra = cov
        first += weight * v
        second += weight * (np.outer(v, v) + extra)
    new = first / r.sum()
    return new, second / r.sum() - np.outer(new, new) + reg * np.eye(d)


def level_update(x, kinds, starts, r, overall, smoothing):
    out = np.array(overall)
    for j, kind in enumerate(kinds):
        if kind not in ("binary", "category", "ordered"):
            continue
        size = starts["sizes"][j]
        part = range(starts[j], starts[j] + size)
        held = [smoothing * overall[place] for place in part]
        for row, weight in zip(x, r):
            if not math.isnan(row[j]):
                held[int(row[j])] += weight
        if kind == "ordered" and size > 3:
            out[part] = tilted(np.array(held), np.array(overall)[part])
        else:
            out[part] = np.array(held) / sum(held)
    return out


def tilted(held, overall):
    """overall exp(a s + b s^2) by BFGS, then by the equations of its two moments."""
    from scipy.optimize import minimize, root

    s = np.arange(len(overall)) - overall @ np.arange(len(overall))

    def loss(v):
        log_p = np.log(overall) + v[0] * s + v[1] * s**2
        log_p = log_p - math.log(np.exp(log_p - log_p.max()).sum()) - log_p.max()
        return -(held @ log_p) / held.sum()

    def slope(v):
        log_p = np.log(overall) + v[0] * s + v[1] * s**2
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        return np.array([(p - held / held.sum()) @ s, (p - held / held.sum()) @ s**2])

    v = minimize(loss, np.zeros(2), jac=slope, method="BFGS", options={"gtol": 1e-13}).x
    v = root(slope, v, options={"xtol": 1e-15}).x
    log_p = np.log(overall) + v[0] * s + v[1] * s**2
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def count_update(x, kinds, r, overall_mean, smoothing):
    means, spreads = [], []
    for m, j in enumerate([j for j, kind in enumerate(kinds) if kind == "count"]):
        there = [i for i in range(len(x)) if not math.isnan(x[i, j])]
        n = sum(r[i] for i in there) + smoothing
        total = sum(r[i] * x[i, j] for i in there) + smoothing * overall_mean[m]
        mean = total / n
        scores = []
        for a in GRID:
            score = sum(r[i] * (log_count(x[i, j], mean, a) + math.lgamma(x[i, j] + 1)) for i in there)
            scores.append(score + smoothing * prior_row(overall_mean[m], mean, a))
        means.append(mean)
        spreads.append(GRID[int(np.argmax(scores))])
    return means, spreads


def prior_row(value, mean, a):
    if a == 0:
        return value * math.log(mean) - mean
    return value * (math.log(mean) - math.log1p(a * mean)) - math.log1p(a * mean) / a
