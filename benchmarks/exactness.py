"""How far the federated fit is from scikit-learn's on the pooled rows, by shape, split and rounds; and far from the origin."""

import warnings

import numpy as np
from sklearn.mixture import GaussianMixture as Pooled

import unpooled as up
from unpooled.data import synthetic
from unpooled.data.federate import federate
from unpooled.local import Local

SHAPES = ("full", "tied", "diag", "spherical")
ATTRIBUTES = ("weights_", "means_", "covariances_")


def apart(ours, theirs, moved: float = 0.0) -> float:
    pairs = [(getattr(ours, a) - (moved if a == "means_" else 0.0), getattr(theirs, a)) for a in ATTRIBUTES]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def start(x: np.ndarray, shape: str, k: int, rng: np.random.Generator) -> dict:
    d = x.shape[1]
    eye = {"full": np.tile(np.eye(d), (k, 1, 1)), "tied": np.eye(d), "diag": np.ones((k, d)), "spherical": np.ones(k)}[
        shape
    ]
    return {
        "weights_init": np.full(k, 1 / k),
        "means_init": x[rng.choice(len(x), k, replace=False)],
        "precisions_init": eye,
    }


def split(x: np.ndarray, clients: int, rng: np.random.Generator) -> Local:
    """Ragged clients who answer one by one: in this process they would otherwise be merged, and nothing would be shown."""
    owner = rng.choice(clients, len(x), p=rng.dirichlet(np.full(clients, 0.8)))
    return federate({str(i): x[owner == i] for i in np.unique(owner)}, mode="one by one")


def main(n: int = 20_000, d: int = 8, k: int = 4) -> None:
    rng = np.random.default_rng(7)
    x = next(iter(synthetic.mixture(n, k, d, separation=2.0, clients=1, random_state=7).clients.values()))
    print("largest relative difference from scikit-learn's pooled fit")
    for shape in SHAPES:
        begin = start(x, shape, k, rng)
        for rounds in (5, 50):
            settings = {"n_components": k, "covariance_type": shape, "tol": 0.0, "max_iter": rounds, **begin}
            theirs = Pooled(**settings).fit(x)
            found = {c: apart(up.GaussianMixture(**settings).fit(split(x, c, rng)), theirs) for c in (1, 7, 300)}
            print(f"{shape:<10}{rounds:>3} rounds   " + "   ".join(f"{c} clients {v:.1e}" for c, v in found.items()))
    print("data moved by 1e6: largest relative difference from the fit that was not moved, moved")
    for shape in SHAPES:
        begin = start(x, shape, k, rng)
        settings = {"n_components": k, "covariance_type": shape, "tol": 0.0, "max_iter": 50, **begin}
        moved = settings | {"means_init": begin["means_init"] + 1e6}
        ours = apart(
            up.GaussianMixture(**moved).fit(split(x + 1e6, 7, rng)), up.GaussianMixture(**settings).fit(x), 1e6
        )
        theirs = apart(Pooled(**moved).fit(x + 1e6), Pooled(**settings).fit(x), 1e6)
        print(f"{shape:<10}ours {ours:.1e}   scikit-learn {theirs:.1e}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
