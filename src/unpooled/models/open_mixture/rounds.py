"""What `OpenMixture` asks its clients: two or three GATHERs, where single answers are needed, and SUMs for all the rest.

GATHER `describe`: components of a local mixture and local k-means centres, with counts. GATHER `count_atoms`: how many rows a client
has at each atom and each Gaussian. GATHER `holdings`: how many in each cluster. In the first and the last nothing leaves that stands
for fewer than `min_count` rows.
SUM `survey`: statistics of all candidate models in one message; each client's own weights of clusters stay in its state.
SUM `atom_squares`: how a row's responsibilities vary, by which the counts are judged.
SUM `evenness`: how far clients' weights of the clusters that they hold are from equal ones, three numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.errors import BadData
from unpooled.maths import gaussian, local_mixture, mixture
from unpooled.maths.mixture import Params, Stats
from unpooled.tree import message

TINY = 1e-300
GOLDEN = 0.6180339887498949
WARM_UP = 5  # passes over its own weights when a client first meets a model
SETTLE = 30  # passes over them under the final model
ROWS_PER_CENTRE = 15
NO_METRIC = np.zeros((0, 0))


@message("open_mixture.Description")
class Description(NamedTuple):
    """What a client says of its rows: components of a mixture, and finer centres."""

    n: Float[Array, "own", ">=0"]
    mean: Float[Array, "own d"]
    scatter: Float[Array, "own t"]  # about the mean, packed
    centre_n: Float[Array, "m", ">=0"]
    centre: Float[Array, "m d"]
    centre_scatter: Float[Array, "t"]  # of all rows about their centres, packed


@message("open_mixture.Proposal")
class Proposal(NamedTuple):
    """A candidate: Gaussian atoms, and the topics that group them; no rows of topics: every atom is a cluster of its own.

    With a metric, atoms are described where it makes the rows' covariance round, which takes few numbers.
    """

    params: Params
    topics: Float[Array, "z k"]
    metric: Float[Array, "e e"] = NO_METRIC  # rows x become x @ metric


@message("open_mixture.Sums")
class Sums(NamedTuple):
    stats: Stats
    topics: Float[Array, "k z"]  # expected rows by atom and topic
    paid: Float[Array, "", ">=0"]  # BIC's price of the clients' own weights
    held_loglik: Float[Array, ""]
    held_shared: Float[Array, ""]  # the same, had all clients the same weights
    held_square: Float[Array, "", ">=0"]  # squares of what a row's differs from the first tested candidate's
    held_rows: Float[Array, "", ">=0"]


@message("open_mixture.Counts")
class Counts(NamedTuple):
    n: Float[Array, "k", ">=0"]  # by atom


@message("open_mixture.Squares")
class Squares(NamedTuple):
    rr: Float[Array, "t"]  # sum over rows of r r', packed


@message("open_mixture.Holdings")
class Holdings(NamedTuple):
    n: Float[Array, "clusters", ">=0"]


@message("open_mixture.Evenness")
class Evenness(NamedTuple):
    """Of a client with n rows in s clusters."""

    free: Float[Array, "", ">=0"]  # s - 1
    rows: Float[Array, "", ">=0"]  # (s - 1) n
    squares: Float[Array, "", ">=0"]  # chi-square of its rows by cluster against equal ones


# ---- the GATHERs ----


@client("open_mixture.describe", GATHER, batched=False)
def describe(
    nothing: None, client: Client, *, max_local: int, max_centres: int, min_count: float, noise: float
) -> Description:
    x, w = rows_of(client)
    n, mean, scatter = _components(x, w, client.rng, max_local)
    keep, mean = leaving(n, mean, x, w, min_count, noise, client.rng)
    centre_n, centre, around = _centres(x, w, client.rng, max_centres)
    fine, centre = leaving(centre_n, centre, x, w, min_count, noise, client.rng)
    return Description(n[keep], mean, gaussian.pack_triangle(scatter[keep]), centre_n[fine], centre, around)


def one_point(found: Collection[Description]) -> bool:
    """Whether all that was described lies in one place."""
    means = np.concatenate([np.concatenate([d.mean, d.centre]) for d in found])
    about = sum(np.abs(d.scatter).sum() + np.abs(d.centre_scatter).sum() for d in found)
    size = np.abs(means).max(initial=0.0)
    return len(means) > 0 and bool(np.ptp(means, axis=0).max() <= 1e-9 * size and about <= 1e-18 * size**2 * len(means))


def rows_of(client: Client) -> tuple[np.ndarray, np.ndarray]:
    """(x, w) of the rows that count."""
    x, w = to_numpy(client.x).astype(float), to_numpy(client.w).astype(float)
    if np.isnan(x[w > 0]).any():
        raise BadData(f"client {client.name!r} has missing values: fill them in first, with MixtureImputer for example")
    return x[w > 0], w[w > 0]


def leaving(n, mean, x, w, min_count: float, noise: float, rng) -> tuple[np.ndarray, np.ndarray]:
    """(which means may leave, those means with their noise)."""
    keep = n >= max(min_count, 1e-9)
    error = noise * np.sqrt(local_mixture.variance(x, w) / n[keep])[:, None]
    return keep, mean[keep] + error * rng.normal(size=mean[keep].shape)


def _components(x, w, rng, max_local: int):
    """(n, mean, scatter); none where they are not asked for."""
    if max_local == 0:
        d = x.shape[1]
        return np.zeros(0), np.zeros((0, d)), np.zeros((0, d, d))
    found = local_mixture.fit(x, w, rng, range(1, max_local + 1))
    return local_mixture.summarise(x, local_mixture.responsibilities(found, x) * w[:, None])


def _centres(x, w, rng, max_centres: int):
    """(n, mean) of each local k-means cluster, and the packed scatter of the rows about them."""
    if max_centres == 0:
        return np.zeros(0), np.zeros((0, x.shape[1])), gaussian.pack_triangle(np.zeros((x.shape[1], x.shape[1])))
    labels = local_mixture.kmeans(x, w, max(1, min(len(x) // ROWS_PER_CENTRE, max_centres)), rng)
    n = np.bincount(labels, w)
    mean = np.stack([np.bincount(labels, w * column) for column in x.T], axis=1) / n[:, None]
    away = x - mean[labels]
    return n, mean, gaussian.pack_triangle((away * w[:, None]).T @ away)


@client("open_mixture.count_atoms", GATHER)
def count_atoms(down: tuple[Proposal, ...], client: Client, *, shapes: list, noise: float) -> tuple[Counts, ...]:
    """Expected rows at each atom, with noise if asked for; an atom is shared by many clients, so that a count shows no row."""
    found = (mixture.e_step(p.params, seen(p, client.x), client.w, shape).n for p, shape in zip(down, shapes))
    return tuple(Counts(_blurred(n, noise, client.rngs) if noise else n) for n in found)


def _blurred(n: Array, noise: float, rngs: Sequence[np.random.Generator]) -> Array:
    """Counts (..., k) with noise from each client's own generator, never below 0."""
    drawn = np.stack([rng.normal(size=n.shape[-1]) for rng in rngs]).reshape(n.shape)
    return np.maximum(n + noise * drawn, 0.0)


@client("open_mixture.holdings", GATHER)
def holdings(
    proposal: Proposal, client: Client, *, shape: str, id: str, alike: bool, even: float, min_count: float
) -> Holdings:
    """Rows in each cluster under the client's own weights, or under all clients'; a count below min_count is sent as 0.

    The client's own are drawn to equal ones over what it holds, by as many rows as `even` says.
    """
    if alike:
        n = mixture.e_step(proposal.params, client.x, client.w, shape).n @ (proposal.topics > 0).T
        shares = n / np.maximum(n.sum(-1), TINY)[..., None]
    else:
        dense = _densities(proposal, client.x, shape)
        shares = frugal(dense, client.w, frugal(dense, client.w, client.state.get(key(id))), even)
        n = _expected(dense, client.w, shares)
    client.state[key(id)] = shares
    return Holdings(np.where(n >= max(min_count, 1e-9), n, 0.0))


def _densities(proposal: Proposal, x: Array, shape: str) -> Array:
    """(..., n, clusters) the density of each row in each cluster, relative to the row's highest of an atom."""
    flat = proposal.params._replace(weights=np.ones_like(proposal.params.weights))
    q = mixture.log_joint(flat, x, shape)
    dense = np.exp(q - q.max(-1, keepdims=True))
    return dense @ proposal.topics.T if len(proposal.topics) else dense


def frugal(dense: Array, w: Array, shares: Array | None, even: float = 0.0) -> Array:
    """(..., clusters) a client's likeliest weights, of clusters alone that are worth BIC's price of a weight to it.

    One cluster goes at a time. What its rows lose is bounded from above: the other weights stay in proportion. Weights are drawn to
    equal ones by `even` rows: where all clients' are nearly equal, a cluster with few of a client's rows must be the clearer.
    """
    rows, size = w.sum(-1)[..., None], dense.shape[-1]
    shares = _settled(dense, w, np.full((*w.shape[:-1], size), 1 / size) if shares is None else shares)
    for _ in range(size):
        shares = _settled(dense, w, np.where(shares * rows > 0.5, shares, 0.0), even)
        loss = np.where(shares > 0, _lost(dense, w, shares), np.inf)
        least = np.arange(size) == loss.argmin(-1)[..., None]
        alone = (shares > 0).sum(-1, keepdims=True) < 2
        gone = least & (loss < np.log(np.maximum(rows, 2.0)) / 2) & ~alone & (rows > 0)
        if not gone.any():
            break
        shares = np.where(gone, 0.0, shares)
    return shares


def _settled(dense: Array, w: Array, shares: Array, even: float = 0.0) -> Array:
    """EM for the weights, with so many rows more in equal shares; a client whose weights are all 0 begins with equal ones."""
    shares = np.where(shares.sum(-1, keepdims=True) > 0, shares, 1.0)
    equal = (shares > 0) / (shares > 0).sum(-1, keepdims=True)
    for _ in range(SETTLE):
        new = _expected(dense, w, shares) + (even + TINY) * equal
        shares = new / new.sum(-1, keepdims=True)
    return shares


def _expected(dense: Array, w: Array, shares: Array) -> Array:
    """(..., clusters) rows in each."""
    share = w / np.maximum((dense @ shares[..., None])[..., 0], TINY)
    return shares * (share[..., None, :] @ dense)[..., 0, :]


def _lost(dense: Array, w: Array, shares: Array) -> Array:
    """(..., clusters) log-likelihood that a client's rows lose without each."""
    joint = dense * shares[..., None, :]
    rest = np.maximum(joint.sum(-1, keepdims=True) - joint, TINY) / np.maximum(joint.sum(-1, keepdims=True), TINY)
    return w.sum(-1)[..., None] * np.log(np.maximum(1 - shares, TINY)) - (w[..., None, :] @ np.log(rest))[..., 0, :]


# ---- the SUMs ----


@client("open_mixture.atom_squares", SUM)
def atom_squares(down: tuple[Proposal, ...], client: Client, *, shapes: list) -> tuple[Squares, ...]:
    """Outer products of each row's responsibilities."""
    return tuple(_squares(p, seen(p, client.x), client.w, shape) for p, shape in zip(down, shapes))


def _squares(proposal: Proposal, x: Array, w: Array, shape: str) -> Squares:
    q = mixture.log_joint(proposal.params, x, shape)
    r = np.exp(q - q.max(-1, keepdims=True))
    r = np.where(w[..., None] > 0, r / r.sum(-1, keepdims=True), 0.0)
    return Squares(gaussian.pack_triangle(np.swapaxes(r * w[..., None], -1, -2) @ r))


@client("open_mixture.evenness", SUM)
def evenness(proposal: Proposal, client: Client, *, shape: str, id: str) -> Evenness:
    """How even the client's weights are, of clusters that are worth their price; it keeps them."""
    dense = _densities(proposal, client.x, shape)
    shares = client.state[key(id)] = frugal(dense, client.w, client.state.get(key(id)))
    rows, held = client.w.sum(-1), (shares > 0).sum(-1)
    away = np.where(shares > 0, shares - 1 / held[..., None], 0.0)
    return Evenness(held - 1.0, (held - 1) * rows, rows * held * (away**2).sum(-1))


@client("open_mixture.survey", SUM)
def survey(
    down: tuple[Proposal, ...],
    client: Client,
    *,
    shapes: list,
    ids: list,
    tested: list,
    held: float,
    keep: list,
    names: Sequence = (),
    brief: Sequence = (),
    still: Sequence = (),
) -> dict[str, Sums]:
    """Statistics of every candidate under the client's own weights of clusters, which it updates and keeps.

    Rows are held out of candidates that are tested, and of no others. Weights of candidates in `keep` stay as they are. Of candidates in
    `brief` the likelihood alone is told, of those in `still` no moments beside counts. Answers go by `names`, or by ids.
    """
    parts = {test: split(client, held if test else 0.0) for test in set(tested)}
    known, answers, first = client.state, [], None
    stay = {key(i) for i in keep}
    client.state = {k: v for k, v in known.items() if not k.startswith("shares-") or k in stay}
    for proposal, shape, i, test in zip(down, shapes, ids, tested):
        (x_fit, w_fit), (x_out, w_out) = parts[test]
        before, x = known.get(key(i)), seen(proposal, x_fit)
        if before is None:
            before = visit(proposal, x, w_fit, shape, None, WARM_UP)[2]
        stats, topics, shares = visit(proposal, x, w_fit, shape, before)
        client.state[key(i)] = shares
        own, shared = _row_logliks(proposal, seen(proposal, x_out), w_out, shape, shares)
        first = own if first is None and test else first
        away = own - first if test else own
        said = ((w_out * a).sum(-1) for a in (own, shared, away**2, np.ones_like(own)))
        paid = _price(shares, stats.rows)
        if i in still:
            stats = stats._replace(x=stats.x[..., :0], xx=stats.xx[..., :0])
        if i in brief:
            stats, topics = _without_moments(stats, shape), topics[..., :0]
        answers.append(Sums(stats, np.swapaxes(topics, -1, -2), paid, *said))
    return dict(zip(names or ids, answers))


def _without_moments(stats: Stats, shape: str) -> Stats:
    """Of no atom, but with the likelihood of all."""
    xx = stats.xx[..., :0] if shape == "spherical" else stats.xx[..., :0, :]
    return stats._replace(n=stats.n[..., :0], x=stats.x[..., :0, :], xx=xx)


def key(id: str) -> str:
    return f"shares-{id}"


def seen(proposal: Proposal, x: Array) -> Array:
    """Rows where the proposal's atoms are described."""
    return x @ proposal.metric if len(proposal.metric) else x


def stretch(proposal: Proposal) -> float:
    """What a row's log-density there lacks of that of the row itself."""
    return float(np.linalg.slogdet(proposal.metric)[1]) if len(proposal.metric) else 0.0


def visit(proposal: Proposal, x: Array, w: Array, shape: str, shares: Array | None, passes: int = 1):
    """(statistics, expected rows by topic and atom, new shares): EM at one client, atoms fixed."""
    topics = proposal.topics
    if shares is None:
        size = topics.shape[0] or topics.shape[1]
        shares = np.full((*w.shape[:-1], size), 1 / size)
    for _ in range(passes):
        atoms = atom_weights(proposal, shares)
        stats = mixture.e_step(proposal.params, x, w, shape, _log(atoms))
        ratio = stats.n / (atoms + TINY)
        found = shares[..., :, None] * topics * ratio[..., None, :] if len(topics) else topics * ratio[..., None, :]
        new = found.sum(-1) if len(topics) else stats.n
        shares = (new + TINY) / (new + TINY).sum(-1)[..., None]
    return stats._replace(loglik=stats.loglik + stretch(proposal) * stats.rows), found, shares


def atom_weights(proposal: Proposal, shares: Array) -> Array:
    """(..., k) a client's weights of atoms, from its shares of topics."""
    return shares @ proposal.topics if len(proposal.topics) else shares


def split(client: Client, held: float) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """((x, w) to fit, (x, w) held out): the same places at every client, spread evenly, so that nobody draws."""
    n = client.x.shape[-2]
    out = np.arange(1, n + 1) * GOLDEN % 1 < held
    return (client.x[..., ~out, :], client.w[..., ~out]), (client.x[..., out, :], client.w[..., out])


def _row_logliks(proposal: Proposal, x: Array, w: Array, shape: str, shares: Array) -> tuple[Array, Array]:
    """(..., n) the log-likelihood of each row under the client's shares, and under all clients' weights."""
    if x.shape[-2] == 0:
        return np.zeros(w.shape), np.zeros(w.shape)
    flat = proposal.params._replace(weights=np.ones_like(proposal.params.weights))
    q = mixture.log_joint(flat, x, shape)  # (..., n, k)
    weights = (atom_weights(proposal, shares)[..., None, :], proposal.params.weights)
    away = stretch(proposal)
    own, shared = (np.where(w > 0, logsumexp(q + _log(a), axis=-1) + away, 0.0) for a in weights)
    return own, shared


def _price(shares: Array, rows: Array) -> Array:
    held = (shares * rows[..., None] > 0.5).sum(-1) - 1
    return np.maximum(held, 0) * np.log(np.maximum(rows, 2.0))


def _log(weights: Array) -> Array:
    return np.log(np.maximum(weights, TINY))
