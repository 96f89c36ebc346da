"""Networks of a client's own: the shared one fine-tuned, and two trained from random starts. One TELL: nothing comes back.

They are candidates for what the client keeps (see `personal`), and so are the shared models with the client's label shares (see
`label_shift`). Networks are scored as they come out without the rows held out, and kept as they come out of all rows; each is a candidate
at several temperatures. The learning rate decays to 0 along a cosine. All clients that the engine stacks are trained at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, like, namespace, to_numpy
from unpooled.client import TELL, Client, client
from unpooled.learners import label_shift
from unpooled.learners.rows import Rows
from unpooled.learners.trainer import Trainer, learning_rate
from unpooled.tree import message

TUNED_SHARES = (0.1, 0.3, 1.0)  # of the epochs of a network alone, after which the fine-tuned one is a candidate
ALONE_SHARES = (0.5, 1.0)  # the same for networks that begin at random
STARTS = 2  # networks that begin at random
TEMPERATURES = (1.0, 2.0, 4.0)  # that divide the scores of a network: one trained on few rows is too sure of itself
STATE, REFITTED, GROUP_MODEL = "nets", "refitted_nets", "group_model"  # keys of a client's state
NO_NETS = np.zeros((0, 0))


@message("learners.Version")
class Version(NamedTuple):
    """Down: the shared learners, their weights over all clients, and the shares of the labels."""

    theta: Float[Array, "k p"]
    weights: Float[Array, "k"]
    labels: Float[Array, "c"]


@client("learners.train_own", TELL)
def train_own(down: Version, client: Client, *, trainer: dict, own: dict, epochs: int) -> None:
    """Train the client's own networks for at most `epochs` epochs and keep them in its state, as (t, p).

    `own` names the keys of the client's state that make its version of the shared learners, see `own_version`. Fine-tuning begins
    with the network of the client's group, if there is one, or with the learner of its largest weight.
    """
    learner = Trainer(**trainer)
    rows = learner.rows(client)
    theta, weights = own_version(down, client.state, own)
    first = to_numpy(client.state.get(GROUP_MODEL, chosen(theta, weights, rows.w.shape[:-1])))
    everything = learner._replace(hold_out=False).rows(client)
    client.state[STATE] = own_nets(learner, client, rows, first, epochs)
    client.state[REFITTED] = own_nets(learner, client, everything, first, epochs)
    client.state[label_shift.KEY] = label_shift.log_ratio(everything, down.labels)


def own_version(down: Any, state: dict, own: dict) -> tuple[np.ndarray, np.ndarray]:
    """(theta, weights) of the client's own version: its weights of the shared learners, or learners of its own.

    `own` names their keys in the client's state: "weights" (with "ids", the positions of the learners, or "pairs" where weights are
    of pairs of a part and a learner), "theta" and "alpha".
    """
    theta = to_numpy(down.theta)
    weights = to_numpy(down.weights)
    if own.get("weights") in state:
        weights = to_numpy(state[own["weights"]])
        weights = weights.sum(-2) if own.get("pairs") else weights[..., own.get("ids") or slice(None)]
    if own.get("theta") in state:
        theta = to_numpy(state[own["theta"]])
        k = theta.shape[-2]
        weights = weights if k == weights.shape[-1] else np.full(k, 1 / k)
    if own.get("alpha") in state:
        alpha = to_numpy(state[own["alpha"]]).reshape(*theta.shape[:-2], 1, 1)
        theta = alpha * theta + (1 - alpha) * to_numpy(down.theta)
    return theta, weights


def chosen(theta: np.ndarray, weights: np.ndarray, lead: tuple[int, ...]) -> np.ndarray:  # (..., 1, p)
    """The learner of the largest weight at each client of the leading axes `lead`."""
    weights = np.broadcast_to(weights, (*lead, weights.shape[-1]))
    theta = np.broadcast_to(theta, (*lead, *theta.shape[-2:]))
    return np.take_along_axis(theta, weights.argmax(-1)[..., None, None], -2)


def own_nets(learner: Trainer, client: Client, rows: Rows, first: np.ndarray, epochs: int) -> np.ndarray:
    """(..., t, p) networks after each of TUNED_SHARES and ALONE_SHARES of the epochs, the fine-tuned ones first."""
    seen = replace(client, w=rows.w, state={})
    drawn = np.stack([learner.start(rng, STARTS) for rng in seen.rngs]).astype(first.dtype)
    begin = np.concatenate([first, drawn.reshape(*first.shape[:-2], STARTS, -1)], -2)  # (..., 1 + STARTS, p)
    shares = [TUNED_SHARES] + STARTS * [ALONE_SHARES]
    stops = [[max(1, round(share * epochs)) for share in some] for some in shares]  # of each network
    theta, found = like(begin, rows.x), {}
    one_epoch = learner._replace(epochs=1, keep_momentum=False, hold_out=False)  # rows held out have weight 0 already
    one = namespace(rows.w).ones_like(rows.w)[..., None]
    ones = namespace(rows.w).concatenate(len(stops) * [one], -1)
    for epoch in range(1, epochs + 1):
        rate = learning_rate(learner.lr, "cosine", epoch, epochs)
        theta = one_epoch._replace(lr=rate).train(theta, seen, rows, ones)
        if any(epoch in some for some in stops):
            found[epoch] = to_numpy(theta)
    kept = [found[until][..., which, :] for which, some in enumerate(stops) for until in some]
    return np.stack(kept, -2)


def sound(
    learner: Trainer, nets: np.ndarray, refitted: np.ndarray, x: Any, y: np.ndarray, w: np.ndarray
) -> np.ndarray:  # (t, p)
    """The networks refitted to all rows, but the scored ones where these rows, with weights w, cost the refitted one more.

    A refitted network has seen the rows that were held out; if it is worse there, its training went astray.
    """
    rows = Rows(learner.placed(x), y, w)
    losses = [-_log_likelihood(learner, each, rows) for each in (nets, refitted)]
    return np.where((losses[1] <= losses[0])[:, None], refitted, nets)


def _log_likelihood(learner: Trainer, nets: np.ndarray, rows: Rows) -> np.ndarray:  # (t,)
    """The log-likelihood of the rows under each network."""
    log_p = to_numpy(learner.log_proba(nets, rows.x)).astype(np.float64)  # (t, c, n)
    picked = log_p[:, rows.y, np.arange(len(rows.y))]
    return np.asarray(picked @ rows.w)


def own_scores(
    learner: Trainer, nets: np.ndarray, x: Any, log_bases: np.ndarray, state: Mapping[str, Any]
) -> np.ndarray:  # (t, n, c)
    """Scores of rows x (n, d) by the shared models with the client's label shares, and by its networks, if it has any, at TEMPERATURES."""
    if not len(nets):
        return np.zeros((0, len(x), len(learner.labels)))
    log_p = to_numpy(learner.log_proba(nets, learner.placed(x))).astype(np.float64)
    scores = np.swapaxes(log_p, -1, -2)[:, None] / np.array(TEMPERATURES)[:, None, None]  # (t, temperatures, n, c)
    return np.concatenate([label_shift.shifted(log_bases, state), scores.reshape(-1, *scores.shape[2:])])
