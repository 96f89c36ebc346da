"""What `OpenMixture` asks clients whose columns are mixed: one SUM per round and one GATHER at the end.

SUM `mixed_stats`: statistics of all candidates in one message; each client's own mixing weights stay in its state.
GATHER `mixed_holdings`: the number of rows in each cluster, without counts below `min_count`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float
from unpooled.client import GATHER, SUM, Client, client
from unpooled.models import mixed
from unpooled.models.open_mixture.client_weights import sparse_shares, weight_penalty
from unpooled.models.open_mixture.constants import TINY
from unpooled.models.open_mixture.questions import Holdings, state_key, without_small_counts
from unpooled.tree import message


@message("open_mixture.MixedStats")
class MixedStats(NamedTuple):
    """Sufficient statistics of one candidate."""

    stats: mixed.Stats
    weight_penalty: Float[Array, "", ">=0"]  # BIC's penalty for the clients' own weights; 0 where weights are common


@client("open_mixture.mixed_stats", SUM, batched=False)
def mixed_stats(
    candidates: tuple[mixed.Params, ...], client: Client, *, columns: dict, shape: str, ids: list, own: list
) -> tuple[MixedStats, ...]:
    """An E-step of every candidate; under the client's own weights, updated and kept in its state, where `own` says so.

    The lists have one entry per candidate; `ids` name the weights in the client's state.
    """
    blocks = mixed.client_blocks(client, columns)
    kinds = mixed.Columns.of(columns)
    answers = []
    for id, has_own, params in zip(ids, own, candidates):
        if not has_own:
            answers.append(MixedStats(mixed.em.e_step(params, blocks, kinds, shape), np.zeros(())))
            continue
        shares: Any = client.state.get(state_key(id), params.gaussian.weights)
        stats = mixed.em.e_step(params, blocks, kinds, shape, np.log(np.maximum(shares, TINY)))
        client.state[state_key(id)] = stats.gaussian.n / np.maximum(stats.gaussian.n.sum(), TINY)
        answers.append(MixedStats(stats, weight_penalty(client.state[state_key(id)], stats.gaussian.rows)))
    return tuple(answers)


@client("open_mixture.mixed_holdings", GATHER, batched=False)
def mixed_holdings(
    params: mixed.Params, client: Client, *, columns: dict, shape: str, id: str, own: bool, min_count: float
) -> Holdings:
    """Expected rows in each cluster, under the client's own weights or those common to all, without counts below min_count.

    The client keeps its own weights: of those clusters alone that BIC justifies.
    """
    shares = params.gaussian.weights
    if own:
        density, w = mixed.client_densities(params, client, columns, shape)
        shares = sparse_shares(density, w, client.state.get(state_key(id)))
    client.state[state_key(id)] = shares
    blocks = mixed.client_blocks(client, columns)
    log_weights = np.log(np.maximum(shares, TINY))
    n = mixed.em.e_step(params, blocks, mixed.Columns.of(columns), shape, log_weights).gaussian.n
    return Holdings(without_small_counts(n, min_count))
