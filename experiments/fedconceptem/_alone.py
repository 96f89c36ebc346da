"""What each client can expect of the model it keeps: its accuracy on all test images made like its own, weighted by its label shares.

Clients' rows are drawn by label, then corrupted and relabelled. So the 10,000 test images of everybody, with the client's corruption
and labels, estimate its accuracy better than the 50 rows that it holds out, for which the difference of two models has a standard error
of several points. Test images are corrupted once for each kind and severity; where all images of a client are moved or turned alike, once
for the client, in its own direction.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from unpooled.datasets import shift

OWN_DIRECTION = ("shift", "rotate")  # corruptions that have one random direction for all images of a client
THREADS = 3  # that corrupt and encode images
RARE = 0.001  # share of a client's rows below which a label is left out


def expected(model: Any, made: shift.Shifted, tests: Tests) -> dict[str, tuple[float, float]]:
    """The accuracy of each client's own model and its standard error, that of the test images."""
    out = {}
    for name in made.train:
        x, classes = tests.rows(made, name)
        y = made.maps[made.concepts[name]][classes]
        shares = label_shares(made, name)
        known = shares[y] > RARE
        out[name] = _by_label(model.predict(x[known], client=name) == y[known], y[known], shares)
    return out


class Tests:
    """Test images as rows of features, corrupted like those of clients.

    Parameters
    ----------
    x : ndarray of shape (n, side, side) or (n, side, side, 3)
        Test images in bytes.
    y : ndarray of shape (n,)
        Their classes.
    clean : ndarray of shape (n, d)
        Their rows as the clients' models take them.
    features : callable or None
        Features of flat images; how they are scaled is read off the clean rows. None: rows are flat images.
    few : int or None
        How many test images a client with a corruption has, drawn by its own label shares; None: all.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, clean: np.ndarray, features: Any, few: int | None = None):
        self.x, self.y, self.features, self.few = x, np.asarray(y, dtype=np.int64), features, few
        self.made = {"": (clean, self.y)}
        if features is not None:
            raw = features(_flat((x[:1000] / 255).astype(np.float32)))
            self.spread = raw.std(0) / clean[: len(raw)].std(0)
            self.mean = raw.mean(0) - self.spread * clean[: len(raw)].mean(0)

    def prepare(self, made: shift.Shifted) -> None:
        """Corrupt and encode the test images like those of every client."""
        clients = {self._key(made, name): name for name in made.train}
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(partial(self.rows, made), clients.values()))

    def rows(self, made: shift.Shifted, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(rows, classes) of test images with the corruption of a client."""
        key = self._key(made, name)
        if key not in self.made:
            places = self._places(made, name)
            rows, _ = shift.like(made, name, self.x[places], self.y[places])
            if self.features is not None:
                rows = (self.features(rows) - self.mean) / self.spread
            self.made[key] = rows.astype(self.made[""][0].dtype), self.y[places]
        return self.made[key]

    def _key(self, made: shift.Shifted, name: str) -> str:
        """The name of a client's test images, which others may share."""
        return name if self.few and made.corruptions[name] else _kind(made, name)

    def _places(self, made: shift.Shifted, name: str) -> np.ndarray:
        """Which test images: all, or about `few`, of each class as many as the client's label shares say."""
        if not self.few:
            return np.arange(len(self.y))
        shares = label_shares(made, name)[made.maps[made.concepts[name]]]  # of each class
        wanted = np.ceil(self.few * shares * (shares > RARE)).astype(int)
        return np.concatenate([np.flatnonzero(self.y == c)[:n] for c, n in enumerate(wanted)])


def _kind(made: shift.Shifted, name: str) -> str:
    """A name for the corruption of a client, which others may share."""
    damage = made.corruptions[name]
    return f"{damage} of {name}" if damage.startswith(OWN_DIRECTION) else damage


def label_shares(made: shift.Shifted, name: str) -> np.ndarray:
    """The label shares of a client over all its rows."""
    labels = np.concatenate([made.train[name][1], made.test[name][1]])
    return np.bincount(labels, minlength=made.maps.shape[1]) / len(labels)


def _by_label(hits: np.ndarray, y: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    """The mean of accuracies by label, weighted by label shares, and its standard error."""
    n = np.bincount(y, minlength=len(shares))
    mean = np.bincount(y, weights=hits, minlength=len(shares)) / n.clip(min=1)
    weights = shares * (n > 0) / (shares * (n > 0)).sum()
    return float(weights @ mean), float(np.sqrt(weights**2 @ (mean * (1 - mean) / n.clip(min=1))))


def _flat(x: np.ndarray) -> np.ndarray:
    """Images as `shift` makes rows of them: in colour one channel after the other."""
    x = np.moveaxis(x, -1, 1) if x.ndim == 4 else x
    return x.reshape(len(x), -1).astype(np.float32)
