"""FedGEM: local EM, balls of estimates that lose nothing, super-clusters where balls meet. A GATHER of balls every round, no SUM.

What leaves: each local component's centre, radius and count, client by client. What goes down is everybody's new centres, by name.
The published algorithm, with what its public code gets wrong put right: the radius is solved for, the meeting point lies in both
balls, and the final radius is chosen without labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import GATHER, SUM, Client, client
from unpooled.data.checks import check_complete
from unpooled.errors import BadData, BadParameter, suggest
from unpooled.estimator import Estimator, Info, rows_of
from unpooled.federation import Federation
from unpooled.maths import local_mixture, mixture
from unpooled.maths.distances import nearest, squared
from unpooled.maths.mixture import Params
from unpooled.models.fedgem import balls
from unpooled.tree import message

RADII = ("exact", "conservative")
GRID = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # final radii tried when none is given


@message("fedgem.Start")
class Start(NamedTuple):
    centre: Float[Array, "k d"]
    squares: Float[Array, "", ">=0"]  # of all rows about their centres
    rows: Float[Array, "", ">=0 rows"]


@message("fedgem.Guide")
class Guide(NamedTuple):
    """Down: one value for all, in which each client finds its own."""

    variance: Float[Array, ""]
    centres: dict[str, Float[Array, "k d"]]


@message("fedgem.Balls")
class Balls(NamedTuple):
    centre: Float[Array, "k d"]
    radius: Float[Array, "k", ">=0"]
    n: Float[Array, "k", ">=0 rows"]


@message("fedgem.CentreSets")
class CentreSets(NamedTuple):
    sets: tuple[Float[Array, "k d"], ...]


@message("fedgem.Silhouettes")
class Silhouettes(NamedTuple):
    total: Float[Array, "s"]
    rows: Float[Array, ""]


@message("fedgem.State")
class State(NamedTuple):
    variance: float
    centres: dict[str, Array]  # client -> (k, d), what the next round starts from
    found: dict[str, Balls]
    moved: float


# ---- questions ----


@client("fedgem.begin", GATHER, batched=False)
def begin(nothing: None, client: Client, *, sizes: dict, default: int, max_local: int, min_count: float) -> Start:
    """Centres of local k-means, of as many as the client was told or as BIC says; fewer where one would have too few rows."""
    x, w = to_numpy(client.x).astype(float), to_numpy(client.w).astype(float)
    x, w = x[w > 0], w[w > 0]
    if w.sum() < min_count:
        raise BadData(f"client {client.name!r} has fewer than min_count={min_count:g} rows: nothing of it may leave")
    k = sizes.get(client.name, default)
    if not k:
        k = len(local_mixture.fit(x, w, client.rng, range(1, max_local + 1)).params.weights)
    labels = local_mixture.kmeans(x, w, k, client.rng, n_init=5)
    while np.bincount(labels, w).min() < min_count:
        labels = local_mixture.kmeans(x, w, int(labels.max()), client.rng, n_init=5)
    r = np.eye(labels.max() + 1)[labels] * w[:, None]
    centre = r.T @ x / r.sum(0)[:, None]
    client.state["weights"] = r.sum(0) / r.sum()
    return Start(centre, np.asarray(w @ ((x - centre[labels]) ** 2).sum(1)), np.asarray(w.sum()))


@client("fedgem.local_step", GATHER, batched=False)
def local_step(guide: Guide, client: Client, *, radius: str, steps: int, min_count: float, noise: float) -> Balls:
    """EM steps on the client's own components, and the ball around each in which the last one's gain is kept.

    A component that is left with too few rows is given up: it leaves neither now nor later.
    """
    before, weights = guide.centres[client.name], client.state["weights"]
    d = before.shape[1]
    for _ in range(steps):
        params = Params(weights, before, np.full(len(before), float(guide.variance)))
        stats = mixture.e_step(params, client.x, client.w, "spherical")
        n = np.maximum(stats.n, 1e-9)
        shift = stats.x / n[:, None]
        old, before, weights = before, before + shift, n / n.sum()
    keep = stats.n >= min(min_count, stats.n.max())  # the largest always stays: all rows are at least as many
    client.state["weights"] = weights[keep] / weights[keep].sum()
    spread = np.maximum(d * stats.xx / n - (shift**2).sum(1), 0.0)
    sizes = balls.exact_radius(before, old) if radius == "exact" else balls.conservative_radius(before, old, spread)
    if noise:
        before = before + noise * np.sqrt(float(guide.variance) / n)[:, None] * client.rng.normal(size=before.shape)
    return Balls(before[keep], sizes[keep], stats.n[keep])


@client("fedgem.silhouettes", SUM, adds=True)
def silhouettes(down: CentreSets, client: Client) -> Silhouettes:
    """For each set of centres, the sum over rows of (b - a) / max(a, b): a to the nearest centre, b to the second."""
    totals = [(_simplified(client.x, centres) * client.w).sum(-1) for centres in down.sets]
    return Silhouettes(np.stack(totals, axis=-1), client.w.sum(-1))


def _simplified(x: Array, centres: Array) -> Array:
    if len(centres) < 2:
        return np.zeros(x.shape[:-1])
    near = np.sqrt(np.partition(squared(x, centres), 1, axis=-1)[..., :2])
    return (near[..., 1] - near[..., 0]) / np.maximum(near[..., 1], 1e-300)


# ---- the server ----


@message("fedgem.Stack")
class Stack(NamedTuple):
    """All clients' balls as one list."""

    names: list[str]
    owner: np.ndarray  # (m,)
    centre: np.ndarray  # (m, d)
    radius: np.ndarray  # (m,)
    n: np.ndarray  # (m,)


def stack(found: Mapping[str, Balls]) -> Stack:
    names = sorted(found)
    parts = [found[name] for name in names]
    owner = np.repeat(np.arange(len(names)), [len(p.n) for p in parts])
    return Stack(names, owner, *(np.concatenate([to_numpy(p[f]) for p in parts]) for f in range(3)))


def drawn_together(all_balls: Stack) -> np.ndarray:
    """(m, d) each component's centre, averaged with the points at which its ball meets others of its super-cluster."""
    i, j, apart = balls.meetings(all_balls.centre, all_balls.radius, all_balls.owner)
    label = balls.super_clusters(i, j, all_balls.owner)
    same = label[i] == label[j]
    i, j, apart = i[same], j[same], apart[same]
    c, r = all_balls.centre, all_balls.radius
    points = balls.meeting_points(c[i], r[i], c[j], r[j], apart)
    total, count = np.array(c), np.ones(len(c))
    for ends in (i, j):
        np.add.at(total, ends, points)
        np.add.at(count, ends, 1)
    return total / count[:, None]


def final_radius(all_balls: Stack, rad: float) -> np.ndarray:
    """(m,) rad R K / sqrt(N) for each component: R the smallest distance between its client's own centres.

    The authors' code takes this length for a squared radius, so that its clusters change with the unit of measurement.
    """
    out, smallest = np.empty(len(all_balls.n)), _smallest(all_balls)
    for c in range(len(all_balls.names)):
        own = all_balls.owner == c
        out[own] = rad * smallest[c] * own.sum() / np.sqrt(max(all_balls.n[own].sum(), 1.0))
    return out


def _smallest(all_balls: Stack) -> np.ndarray:
    """(clients,) the smallest distance between a client's own centres; with one centre, what is usual among the others.

    Where all clients have one centre each, it is the usual distance to the nearest of another client.
    """
    parts = [all_balls.centre[all_balls.owner == c] for c in range(len(all_balls.names))]
    found = np.array([pdist(part).min() if len(part) > 1 else np.nan for part in parts])
    alone = np.isnan(found)
    if not alone.all():
        return np.where(alone, np.nanmedian(found), found)
    near = cKDTree(all_balls.centre).query(all_balls.centre, k=2)[0][:, 1] if len(parts) > 1 else np.ones(1)
    return np.full(len(parts), np.median(near))


def joined(all_balls: Stack, label: np.ndarray) -> np.ndarray:
    """(k, d) centres of super-clusters, weighed by counts."""
    n = np.bincount(label, all_balls.n + 1e-9)
    return (
        np.stack([np.bincount(label, (all_balls.n + 1e-9) * column) for column in all_balls.centre.T], axis=1)
        / n[:, None]
    )


def _apart(new: np.ndarray, old: np.ndarray) -> float:
    return float(np.abs(new - old).max()) if len(new) == len(old) else np.inf  # one was given up


class FedGEM(Estimator):
    """Clusters from super-clusters of local isotropic components, their number inferred.

    n_components : components a client has: a number, a mapping from client to number (as in the paper), or "auto" (BIC).
    radius : "exact", or "conservative" as the authors' robust problem gives it.
    final_radius : the paper's tuned factor, or "auto": the best silhouette over a grid, by one SUM and without labels.
    local_steps : EM steps a round.
    min_count : a component of fewer rows than this does not leave its client (the paper has no such limit: 0).
    noise : standard deviation of noise on the centres that leave, in standard errors of a mean of the component's rows.
    """

    def __init__(
        self,
        n_components: int | Mapping[str, int] | str = "auto",
        *,
        radius: str = "exact",
        final_radius: float | str = "auto",
        local_steps: int = 1,
        min_count: float = 5,
        noise: float = 0.0,
        max_local: int = 10,
        max_iter: int = 30,
        tol: float = 1e-3,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.radius = radius
        self.final_radius = final_radius
        self.local_steps = local_steps
        self.min_count = min_count
        self.noise = noise
        self.max_local = max_local
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        sizes = dict(self.n_components) if isinstance(self.n_components, Mapping) else {}
        default = self.n_components if isinstance(self.n_components, int) else 0
        question = begin.using(sizes=sizes, default=default, max_local=self.max_local, min_count=self._least(fed))
        found = fed.gather(question, None)
        cells = sum(float(s.rows) * s.centre.shape[1] for s in found.values())
        variance = max(sum(float(s.squares) for s in found.values()) / cells, 1e-12)
        return State(variance, {name: s.centre for name, s in found.items()}, {}, np.inf)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        known = fed.only([name for name in fed.names if name in state.centres])
        rules = {"radius": self.radius, "steps": self.local_steps, "min_count": self._least(fed), "noise": self.noise}
        question = local_step.using(**rules)
        found = known.gather(question, Guide(np.asarray(state.variance), state.centres))
        everything = stack(found)
        new = drawn_together(everything)
        parts = {name: new[everything.owner == c] for c, name in enumerate(everything.names)}
        moved = max(_apart(part, state.centres[name]) for name, part in parts.items())
        centres = state.centres | parts
        return State(state.variance, centres, state.found | found, moved), {"moved": moved, "components": len(new)}

    def _least(self, fed: Federation) -> float:
        return self.min_count if len(fed.names) > 1 else 0.0  # a federation of one hides nothing from itself

    def done(self, state: State, history: list[Info]) -> bool:
        return state.moved < self.tol * np.sqrt(state.variance)

    def finish(self, fed: Federation, state: State) -> None:
        everything = stack(state.found)
        grid = GRID if self.final_radius == "auto" else (float(self.final_radius),)
        labels = [self._super(everything, rad) for rad in grid]
        pick = self._pick(fed, [joined(everything, label) for label in labels]) if len(grid) > 1 else 0
        self.final_radius_, label = grid[pick], labels[pick]
        self.n_components_ = int(label.max()) + 1
        self.cluster_centers_, self.variance_ = joined(everything, label), state.variance
        self.n_features_in_ = self.cluster_centers_.shape[1]
        self.super_clusters_ = {n: label[everything.owner == c] for c, n in enumerate(everything.names)}
        self.local_centers_ = {name: to_numpy(b.centre) for name, b in state.found.items()}
        here = [c for c in fed.here() if c.name in self.local_centers_ and "weights" in c.state]
        self.client_weights_ = {c.name: c.state["weights"] for c in here}
        self.labels_ = {c.name: self.predict(c.x, client=c.name) for c in here}

    def _super(self, everything: Stack, rad: float) -> np.ndarray:
        i, j, _ = balls.meetings(everything.centre, final_radius(everything, rad), everything.owner)
        return balls.super_clusters(i, j, everything.owner)

    def _pick(self, fed: Federation, sets: list[np.ndarray]) -> int:
        found = fed.sum(silhouettes, CentreSets(tuple(sets)))
        return int(np.argmax(found.total))

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The super-cluster of each row: by the client's own components if one is named, else by the nearest centre."""
        check_is_fitted(self, "cluster_centers_")
        x = rows_of(self, X)
        if client is None:
            return nearest(x, self.cluster_centers_)
        if client not in self.local_centers_:
            raise BadParameter(f"there is no client {client!r}: {suggest(client, self.local_centers_)}")
        centres, k = self.local_centers_[client], len(self.local_centers_[client])
        weights = self.client_weights_.get(client, np.full(k, 1 / k))
        q = mixture.log_joint(Params(weights, centres, np.full(k, self.variance_)), x, "spherical")
        return self.super_clusters_[client][q.argmax(-1)]

    def check(self, fed: Federation) -> None:
        check_complete(fed.here())
        if self.radius not in RADII:
            raise BadParameter(f"radius={self.radius!r} is not known: use one of {', '.join(RADII)}")
        if isinstance(self.n_components, str) and self.n_components != "auto":
            raise BadParameter(f"n_components={self.n_components!r} is not known: give a number, a mapping or 'auto'")
        if isinstance(self.n_components, int) and self.n_components < 1:
            raise BadParameter(f"n_components={self.n_components!r} must be at least 1")
        for name in ("min_count", "noise"):
            if getattr(self, name) < 0:
                raise BadParameter(f"{name}={getattr(self, name)!r} must be at least 0")
        if self.final_radius != "auto" and not (isinstance(self.final_radius, int | float) and self.final_radius >= 0):
            raise BadParameter(f"final_radius={self.final_radius!r} must be 'auto' or a number of at least 0")
