"""Clients that come after the fit: their components join known clusters or become new ones. One GATHER of components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unpooled.arrays import Array
from unpooled.client import GATHER, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, local_mixture, mixture
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture import merging
from unpooled.models.open_mixture.candidates import Candidate
from unpooled.models.open_mixture.client_weights import Proposal, atom_weights, local_em
from unpooled.models.open_mixture.constants import FINAL_WEIGHT_STEPS, NEW_CLUSTER_GAIN, PARTITION_SEED
from unpooled.models.open_mixture.descriptions import (
    Description,
    description,
    draw_components,
    rows_with_weight,
)
from unpooled.models.open_mixture.initial import local_components, prior_covariances
from unpooled.models.open_mixture.questions import MIN_POSITIVE, without_offset


@client("open_mixture.describe_unexplained", GATHER, batched=False)
def describe_unexplained(
    known: Proposal,
    client: Client,
    *,
    shape: str,
    max_local: int,
    min_count: float,
    units: Sequence[Sequence[float]] = (),
) -> Description:
    """Components of a local mixture that explain their rows better than all known clusters, by BIC and by NEW_CLUSTER_GAIN."""
    x, w = rows_with_weight(client, units)
    x = without_offset(x, client)
    rng = np.random.default_rng(PARTITION_SEED)
    fit = local_mixture.fit(x, w, rng, range(1, max_local + 1))
    component = draw_components(x, w, fit, min_count, rng)
    own = mixture.log_density(fit.params, x, fit.shape)
    gain = np.bincount(component, w * (own - _known_log_density(known, x, w, shape)))  # (k,)
    n = np.bincount(component, w)
    n_rows = np.bincount(component)
    penalty = gaussian.n_parameters(1, x.shape[1], fit.shape) / 2 * np.log(w.sum())
    new = (gain > penalty) & (gain > NEW_CLUSTER_GAIN * n) & (np.minimum(n, n_rows) >= max(min_count, MIN_POSITIVE))
    rows = new[component]
    component = np.unique(component[rows], return_inverse=True)[1]
    return description(x[rows], w[rows], component, component)


def _known_log_density(known: Proposal, x: np.ndarray, w: np.ndarray, shape: str) -> np.ndarray:
    """(n,) log density of each row under the known clusters, with the client's own weights of them."""
    shares = local_em(known, x, w, shape, None, FINAL_WEIGHT_STEPS)[2]
    params = known.params._replace(weights=atom_weights(known, shares))
    return mixture.log_density(params, x, shape)


def with_new_clusters(
    fed: Federation, known: Candidate, within: Array, max_local: int, min_count: float, units: Sequence[Sequence[float]]
) -> Candidate:
    """The known model, followed by the new clusters that the clients of `fed` bring."""
    question = describe_unexplained.using(shape=known.shape, max_local=max_local, min_count=min_count, units=units)
    descriptions = fed.gather(question, known.proposal)
    if not any(len(d.n) for d in descriptions.values()):
        return known
    condensed, _, merges = merging.merge(local_components(descriptions), known.shape)
    new = merging.grouped(condensed, merges.labels(merges.best()))
    covs = gaussian.reshape_covs(prior_covariances(new, within), known.shape)
    return _extended(known, new.mean, gaussian.pack_covs(covs, known.shape))


def _extended(known: Candidate, means: Array, covs: Array) -> Candidate:
    """The old parameters unchanged; new clusters have weight 0 in the mixture of the old clients."""
    params, topics = known.proposal
    n_new = len(means)
    extended = Params(
        np.concatenate([params.weights, np.zeros(n_new)]),
        np.concatenate([params.means, means]),
        np.concatenate([params.covs, covs]),
    )
    z, m = topics.shape
    all_topics = np.zeros((z + n_new, m + n_new))
    all_topics[:z, :m], all_topics[z:, m:] = topics, np.eye(n_new)
    return known._replace(proposal=Proposal(extended, all_topics))
