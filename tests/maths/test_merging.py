"""Joining components: sums of rows exactly, evidence against products of Student's t, planted clusters found."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import multivariate_t, t
from sklearn.metrics import adjusted_rand_score

from unpooled.models.open_mixture import merging
from unpooled.models.open_mixture.merging import Components, Prior


def summary(groups, owners, clients):
    n = np.array([float(len(x)) for x in groups])
    mean = np.stack([x.mean(0) for x in groups])
    scatter = np.stack([(x - m).T @ (x - m) for x, m in zip(groups, mean)])
    return Components(n, mean, scatter, csr_array((n, (np.arange(len(n)), owners)), shape=(len(n), clients)))


def planted(seed, clients, held, k, d, apart=8.0, rows=60):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(k, d)) * apart / np.sqrt(d)
    truth = np.concatenate([rng.choice(k, held, replace=False) for _ in range(clients)])
    groups = [centres[z] + rng.normal(size=(rows, d)) for z in truth]
    return summary(groups, np.repeat(np.arange(clients), held), clients), truth


def test_joined_and_pooled_are_the_summaries_of_all_rows():
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(m, 3)) + 1e3 for m in (5, 9, 4)]
    parts = summary(groups, [0, 1, 1], 2)
    both = summary([np.concatenate(groups[:2])], [0], 2)
    everything = summary([np.concatenate(groups)], [0], 2)
    for got, want in (
        (merging.joined(parts, np.array([0]), np.array([1])), both),
        (merging.pooled(parts, np.zeros(3, dtype=int)), everything),
    ):
        for a, b in zip(got[:3], want[:3]):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-9)
    assert merging.pooled(parts, np.zeros(3, dtype=int)).held.toarray().tolist() == [[5, 13]]


def test_full_evidence_is_the_product_of_predictive_densities():
    rng = np.random.default_rng(1)
    d = 3
    x = rng.normal(size=(7, d)) @ rng.normal(size=(d, d)) + 2
    within = np.diag([1.0, 2.0, 0.5])
    prior = Prior(np.array([1.0, 2.0, 3.0]), within, "full", 10.0)
    mean, kappa, nu, psi, total = prior.mean, merging.SHRINK, d + 2.0, within.copy(), 0.0
    for row in x:  # the predictive density of each row given those before it
        dof = nu - d + 1
        total += multivariate_t.logpdf(row, mean, psi * (kappa + 1) / (kappa * dof), dof)
        psi = psi + kappa / (kappa + 1) * np.outer(row - mean, row - mean)
        mean, kappa, nu = (kappa * mean + row) / (kappa + 1), kappa + 1, nu + 1
    parts = summary([x], [0], 1)._replace(held=csr_array((1, 1)))
    got = merging.evidence(parts, prior)[0] - len(x) * d / 2 * np.log(np.pi)
    assert got == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("shape", ["diag", "spherical"])
def test_round_evidence_is_the_product_of_predictive_densities(shape):
    x = np.random.default_rng(2).normal(size=(6, 1)) * 2 + 1
    prior = Prior(np.array([0.5]), np.array([[1.5]]), shape, 10.0)
    mean, kappa, a, b, total = 0.5, merging.SHRINK, 2.0, 1.5, 0.0
    for (row,) in x:
        total += t.logpdf(row, 2 * a, mean, np.sqrt(b * (kappa + 1) / (a * kappa)))
        b += kappa / (kappa + 1) * (row - mean) ** 2 / 2
        mean, kappa, a = (kappa * mean + row) / (kappa + 1), kappa + 1, a + 0.5
    parts = summary([x], [0], 1)._replace(held=csr_array((1, 1)))
    got = merging.evidence(parts, prior)[0] - len(x) / 2 * np.log(np.pi)
    assert got == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("shape", ["full", "diag", "spherical"])
def test_planted_clusters_are_found(shape):
    parts, truth = planted(3, clients=30, held=4, k=8, d=6)
    _, where, merges = merging.merge(parts, shape)
    assert merges.best() == 8
    assert adjusted_rand_score(truth, merges.labels(8)[where]) == 1.0


def test_many_components_are_condensed_first_and_none_is_lost():
    parts, truth = planted(4, clients=150, held=4, k=12, d=5)
    few, where, merges = merging.merge(parts, "full")
    assert len(few.n) <= merging.EXACT < len(parts.n)
    assert few.n.sum() == pytest.approx(parts.n.sum())
    assert adjusted_rand_score(truth, merges.labels(merges.best())[where]) == 1.0


def test_a_component_stays_alone_when_nobody_is_near():
    parts, truth = planted(5, clients=5, held=3, k=15, d=4, apart=40.0)
    _, _, merges = merging.merge(parts, "spherical")
    assert merges.best() == len(np.unique(truth))
