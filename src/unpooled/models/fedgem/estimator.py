"""`FedGEM`: a GATHER of balls every round, one SUM of silhouettes at the end (see the package docstring)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.arrays import Array, to_numpy
from unpooled.data.checks import check_complete
from unpooled.errors import BadParameter, suggest
from unpooled.estimator import Estimator, Info, rows_of
from unpooled.federation import Federation
from unpooled.maths import mixture
from unpooled.maths.distances import nearest
from unpooled.maths.mixture import Params
from unpooled.models.fedgem.questions import Balls, CentreSets, Guide, begin, local_step, silhouettes
from unpooled.models.fedgem.super_clusters import AllBalls, all_balls, cluster_centres, final_labels, moved_centres
from unpooled.tree import message

RADII = ("exact", "conservative")
FINAL_RADII = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # tried with final_radius="auto"


@message("fedgem.State")
class State(NamedTuple):
    variance: float
    centres: dict[str, Array]  # client -> (k, d), what the next round starts from
    balls: dict[str, Balls]  # client -> its last answer
    moved: float  # largest change of a coordinate in the last round


class FedGEM(Estimator):
    """Clusters as super-clusters of the clients' isotropic components; the number of clusters is inferred.

    Parameters
    ----------
    n_components : int, mapping of str to int, or "auto", default="auto"
        Number of components per client: the same for all, by client (as in the paper), or by BIC at each client.
    radius : {"exact", "conservative"}, default="exact"
        Radius of the balls: where the expected log-likelihood equals its value before the step, or the smaller one of the authors'
        robust optimisation problem.
    final_radius : float or "auto", default="auto"
        Factor of the radius by which final super-clusters are formed, tuned in the paper; "auto" takes the best silhouette over a
        grid, without labels.
    local_steps : int, default=1
        EM steps per round.
    min_count : float, default=5
        A component of fewer rows than this does not leave its client. The paper has no such limit: 0.
    max_local : int, default=10
        Largest number of components per client with ``n_components="auto"``.
    max_iter : int, default=30
        Largest number of rounds.
    tol : float, default=1e-3
        The fit ends when no coordinate of a centre moves by more than this many standard deviations.
    random_state : int, RandomState instance or None, default=None
        Seed of all random draws.

    Attributes
    ----------
    n_components_ : int
        Number of super-clusters.
    cluster_centers_ : array of shape (n_components_, n_features)
        Mean of each super-cluster.
    final_radius_ : float
        The factor that was used.
    variance_ : float
        Variance of all components, in every direction.
    super_clusters_ : dict of str to array
        Client to the super-cluster of each of its components.
    local_centers_ : dict of str to array
        Client to the centres of its components.
    client_weights_ : dict of str to array
        Client to the weights of its components, for clients in this process.
    labels_ : dict of str to array
        Client to the super-cluster of each of its rows, for clients in this process.
    n_features_in_ : int
        Number of columns.

    References
    ----------
    "A Federated Generalized Expectation-Maximization Algorithm for Mixture Models with an Unknown Number of Components", ICLR 2026,
    arXiv:2601.21160.

    Examples
    --------
    >>> import numpy as np
    >>> import unpooled as up
    >>> rng = np.random.default_rng(0)
    >>> centers = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    >>> held = {"a": [0, 1], "b": [1, 2], "c": [0, 2]}
    >>> data = {name: centers[rng.choice(k, 60)] + rng.normal(size=(60, 2)) for name, k in held.items()}
    >>> model = up.FedGEM(n_components=2, random_state=0).fit(data)
    >>> model.n_components_
    3
    """

    def __init__(
        self,
        n_components: int | Mapping[str, int] | str = "auto",
        *,
        radius: str = "exact",
        final_radius: float | str = "auto",
        local_steps: int = 1,
        min_count: float = 5,
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
        self.max_local = max_local
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def init(self, fed: Federation, rng: np.random.Generator) -> State:
        """Local k-means at every client; one variance for all components."""
        sizes = dict(self.n_components) if isinstance(self.n_components, Mapping) else {}
        default = self.n_components if isinstance(self.n_components, int) else 0
        question = begin.using(sizes=sizes, default=default, max_local=self.max_local, min_count=self._min_count(fed))
        starts = fed.gather(question, None)
        n_values = sum(float(s.rows) * s.centre.shape[1] for s in starts.values())
        squares = sum(float(s.squares) for s in starts.values())
        variance = max(squares / n_values, 1e-12)
        centres = {name: s.centre for name, s in starts.items()}
        return State(variance, centres, {}, np.inf)

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """Local EM at every client; the server moves centres within overlapping balls."""
        started = fed.only([name for name in fed.names if name in state.centres])
        question = local_step.using(radius=self.radius, steps=self.local_steps, min_count=self._min_count(fed))
        answers = started.gather(question, Guide(np.asarray(state.variance), state.centres))
        found = all_balls(answers)
        new = moved_centres(found)
        centres = found.by_client(new)
        moved = max(_largest_change(centre, state.centres[name]) for name, centre in centres.items())
        state = State(state.variance, state.centres | centres, state.balls | answers, moved)
        return state, {"moved": moved, "components": len(new)}

    def done(self, state: State, history: list[Info]) -> bool:
        return state.moved < self.tol * np.sqrt(state.variance)

    def _min_count(self, fed: Federation) -> float:
        """A single client is its own server: there is nothing to hide."""
        return self.min_count if len(fed.names) > 1 else 0.0

    def finish(self, fed: Federation, state: State) -> None:
        """Form the final super-clusters and set the attributes."""
        found = all_balls(state.balls)
        factors = FINAL_RADII if self.final_radius == "auto" else (float(self.final_radius),)
        labels = [final_labels(found, factor) for factor in factors]
        chosen = self._best_silhouette(fed, found, labels) if len(factors) > 1 else 0
        self.final_radius_ = factors[chosen]
        label = labels[chosen]
        self.n_components_ = int(label.max()) + 1
        self.cluster_centers_ = cluster_centres(found, label)
        self.variance_ = state.variance
        self.n_features_in_ = self.cluster_centers_.shape[1]
        self.super_clusters_ = found.by_client(label)
        self.local_centers_ = {name: to_numpy(b.centre) for name, b in state.balls.items()}
        here = [c for c in fed.here() if c.name in self.local_centers_ and "weights" in c.state]
        self.client_weights_ = {c.name: c.state["weights"] for c in here}
        self.labels_ = {c.name: self.predict(c.x, client=c.name) for c in here}

    def _best_silhouette(self, fed: Federation, found: AllBalls, labels: list[np.ndarray]) -> int:
        """The index of the labels whose centres have the largest mean silhouette: one SUM."""
        sets = CentreSets(tuple(cluster_centres(found, label) for label in labels))
        return int(np.argmax(fed.sum(silhouettes, sets).total))

    def predict(self, X: Any, client: str | None = None) -> np.ndarray:
        """The super-cluster of each row.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
        client : str, default=None
            Use this client's own components; by default the nearest of `cluster_centers_`.

        Returns
        -------
        labels : array of shape (n,)
        """
        check_is_fitted(self, "cluster_centers_")
        x = rows_of(self, X)
        if client is None:
            return nearest(x, self.cluster_centers_)
        if client not in self.local_centers_:
            raise BadParameter(f"there is no client {client!r}: {suggest(client, self.local_centers_)}")
        centres = self.local_centers_[client]
        k = len(centres)
        weights = self.client_weights_.get(client, np.full(k, 1 / k))
        log_joint = mixture.log_joint(Params(weights, centres, np.full(k, self.variance_)), x, "spherical")
        return self.super_clusters_[client][log_joint.argmax(-1)]

    def check(self, fed: Federation) -> None:
        """Refuse bad parameters and rows with missing values before the first round."""
        check_complete(fed.here())
        if self.radius not in RADII:
            raise BadParameter(f"radius={self.radius!r} is not known: use one of {', '.join(RADII)}")
        if isinstance(self.n_components, str) and self.n_components != "auto":
            raise BadParameter(f"n_components={self.n_components!r} is not known: give a number, a mapping or 'auto'")
        if isinstance(self.n_components, int) and self.n_components < 1:
            raise BadParameter(f"n_components={self.n_components!r} must be at least 1")
        if self.final_radius != "auto" and not (isinstance(self.final_radius, int | float) and self.final_radius >= 0):
            raise BadParameter(f"final_radius={self.final_radius!r} must be 'auto' or a number of at least 0")


def _largest_change(new: np.ndarray, old: np.ndarray) -> float:
    """Of a coordinate; infinite if a component was dropped."""
    return float(np.abs(new - old).max()) if len(new) == len(old) else np.inf
