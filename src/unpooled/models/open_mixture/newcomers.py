"""Clients that come after the fit: their components join known clusters or open new ones. One GATHER of components."""

from __future__ import annotations

import numpy as np

from unpooled.arrays import Array
from unpooled.client import GATHER, Client, client
from unpooled.federation import Federation
from unpooled.maths import gaussian, local_mixture, mixture
from unpooled.maths.mixture import Params
from unpooled.models.open_mixture import merging, rounds
from unpooled.models.open_mixture.race import Candidate, components
from unpooled.models.open_mixture.rounds import Description, Proposal

STRANGE = 1.0  # nats a row by which a new cluster must explain its rows better: half of a known one does not


@client("open_mixture.describe_strangers", GATHER, batched=False)
def describe_strangers(
    known: Proposal, client: Client, *, shape: str, max_local: int, min_count: float, noise: float
) -> Description:
    """Components of the client's rows that a Gaussian of their own explains better than all known clusters, by BIC."""
    x, w = rounds.rows_of(client)
    found = local_mixture.fit(x, w, client.rng, range(1, max_local + 1))
    r = local_mixture.responsibilities(found, x) * w[:, None]
    shares = rounds.visit(known, x, w, shape, None, 30)[2]
    explained = mixture.log_density(known.params._replace(weights=rounds.atom_weights(known, shares)), x, shape)
    own = mixture.log_joint(found.params, x, found.shape)
    d = x.shape[1]
    price = gaussian.n_parameters(1, d, found.shape) / 2 * np.log(w.sum())
    gain = (r * (own - explained[:, None])).sum(0)  # (k,)
    n, mean, scatter = local_mixture.summarise(x, r)
    stranger = (gain > price) & (gain > STRANGE * n)
    n, mean, scatter = n[stranger], mean[stranger], scatter[stranger]
    keep, mean = rounds.leaving(n, mean, x, w, min_count, noise, client.rng)
    none, around = np.zeros((0, d)), gaussian.pack_triangle(np.zeros((d, d)))
    return Description(n[keep], mean, gaussian.pack_triangle(scatter[keep]), np.zeros(0), none, around)


def newcomers(
    fed: Federation, known: Candidate, within: Array, max_local: int, min_count: float, noise: float
) -> Candidate:
    """The known model, and behind its clusters the new ones that the clients of `fed` bring."""
    question = describe_strangers.using(shape=known.shape, max_local=max_local, min_count=min_count, noise=noise)
    found = fed.gather(question, known.proposal)
    if not any(len(d.n) for d in found.values()):
        return known
    parts = components(found)
    few, _, merges = merging.merge(parts, known.shape)
    new = merging.pooled(few, merges.labels(merges.best()))
    covs = (new.scatter + 2 * gaussian.unpack_triangle(within)) / (new.n + 2)[:, None, None]
    return _grown(known, new.mean, gaussian.pack_covs(gaussian.reshape_covs(covs, known.shape), known.shape))


def _grown(known: Candidate, means: Array, covs: Array) -> Candidate:
    """Old parameters to the last bit; new clusters have weight 0 in the old clients' mixture."""
    params, grouped, _ = known.proposal
    k = len(means)
    params = Params(
        *(np.concatenate(pair) for pair in ((params.weights, np.zeros(k)), (params.means, means), (params.covs, covs)))
    )
    z, m = grouped.shape
    both = np.zeros((z + k, m + k))
    both[:z, :m], both[z:, m:] = grouped, np.eye(k)
    return known._replace(proposal=Proposal(params, both))
