"""OpenMixture where clients differ and clusters are many: the search ends as low as EM from the true clusters."""

import numpy as np
import pytest

import unpooled as up
from unpooled.data.federate import federate
from unpooled.models.open_mixture.candidates import GAUSSIANS, gaussian_candidate, updated
from unpooled.models.open_mixture.constants import CLUSTER_PENALTY, SHAPES
from unpooled.models.open_mixture.phases import Settle, question

N_CLUSTERS, N_CLIENTS, ROWS = 15, 10, 800


def skewed_clients(seed):
    """(clients' rows, their clusters): each cluster is held by few clients."""
    rng = np.random.default_rng(seed)
    means = 20.0 * rng.normal(size=(N_CLUSTERS, 2))
    shares = rng.dirichlet(np.full(N_CLIENTS, 0.3), size=N_CLUSTERS)
    y = rng.integers(N_CLUSTERS, size=ROWS)
    x = means[y] + rng.uniform(0.5, 1.5, size=(N_CLUSTERS, 2))[y] * rng.normal(size=(ROWS, 2))
    by = np.array([rng.choice(N_CLIENTS, p=shares[k]) for k in y])
    held = np.unique(by)
    return {f"c{c}": x[by == c] for c in held}, np.concatenate([y[by == c] for c in held])


def lowest_cost_from_the_truth(data, truth):
    """The cost of the mixture that EM reaches from the true clusters, of the best covariance type."""
    x, n = np.concatenate(list(data.values())), np.bincount(truth).astype(float)
    means = np.stack([x[truth == k].mean(0) for k in range(N_CLUSTERS)])
    covs = np.stack([np.cov(x[truth == k].T, bias=True) for k in range(N_CLUSTERS)])
    starts = [gaussian_candidate(shape, GAUSSIANS, shape, n, means, covs) for shape in SHAPES]
    fed, phase = federate(data), Settle(tuple(starts))
    for _ in range(12):
        answers = fed.sum(question(phase, ()), tuple(c.proposal for c in phase.candidates))
        phase = Settle(tuple(updated(c, answers[c.answer_key]) for c in phase.candidates))
    return min(c.cost for c in phase.candidates)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_search_ends_as_low_as_from_the_true_clusters(seed):
    data, truth = skewed_clients(seed)
    model = up.OpenMixture("gaussians", site_offsets=False, random_state=0).fit(data)
    cost = model.bic_ + CLUSTER_PENALTY * model.n_components_
    assert cost < lowest_cost_from_the_truth(data, truth) + CLUSTER_PENALTY, model.n_components_
