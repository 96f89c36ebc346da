"""What a mixture asks of clients in a round of EM: one SUM of sufficient statistics of each mixture that is asked about."""

from __future__ import annotations

from unpooled.arrays import Array, namespace
from unpooled.client import SUM, Client, client
from unpooled.maths import mixture
from unpooled.maths.mixture import Params, Stats


@client("mixture.e_step", SUM, adds=True)
def e_step(down: tuple[Params, ...], client: Client, *, shape: str) -> tuple[Stats, ...]:
    """Counts, sums and second moments of each component, weighted by how probable it is for each row."""
    return tuple(mixture.e_step(params, client.x, client.w, shape) for params in down)


@client("mixture.personal_e_step", SUM)
def personal_e_step(down: tuple[Params, ...], client: Client, *, shape: str, ids: list) -> tuple[Stats, ...]:
    """Counts, sums and second moments under the client's own weights, which it updates and keeps."""
    answers = []
    for i, params in zip(ids, down):
        mine = client.state.get(f"weights-{i}", params.weights)
        stats = mixture.e_step(params, client.x, client.w, shape, log_weights=_log(mine))
        client.state[f"weights-{i}"] = stats.n / stats.n.sum(-1)[..., None]
        answers.append(stats)
    return tuple(answers)


def _log(weights: Array) -> Array:
    """The logarithm, finite for a weight of 0."""
    xp = namespace(weights)
    return xp.log(xp.clip(weights, 1e-300, None))
