"""What each client can expect of the model it keeps: its accuracy on test images made like its own, weighted by its label shares.

Clients' rows are drawn by label, then corrupted and relabelled. So the test images of everybody, with the client's corruption and
labels, estimate its accuracy better than the 50 rows that it holds out, for which the difference of two models has a standard error of
several points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unpooled.datasets import corruptions, shift

CORRUPTED_ROWS = 1000  # test images of a corruption


def expected(model: Any, made: shift.Shifted, tests: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """The accuracy of each client's own model; `tests` are rows and true classes by corruption, see `evaluation_rows`."""
    out = {}
    for name, damage in made.corruptions.items():
        x, classes = tests[damage]
        y = made.maps[made.concepts[name]][classes]
        out[name] = _by_label(model.predict(x, client=name) == y, y, label_shares(made, name))
    return out


def label_shares(made: shift.Shifted, name: str) -> np.ndarray:
    """The label shares of a client over all its rows."""
    labels = np.concatenate([made.train[name][1], made.test[name][1]])
    return np.bincount(labels, minlength=made.maps.shape[1]) / len(labels)


def _by_label(hits: np.ndarray, y: np.ndarray, shares: np.ndarray) -> float:
    n = np.bincount(y, minlength=len(shares))
    mean = np.bincount(y, weights=hits, minlength=len(shares)) / n.clip(min=1)
    return float(np.average(mean, weights=shares * (n > 0)))


def evaluation_rows(x: np.ndarray, y: np.ndarray, made: shift.Shifted, clean: np.ndarray, features: Any) -> dict:
    """(rows, classes) for every corruption of the clients; `clean` are the rows of x as the clients' models take them.

    `features` computes rows of flat images; how they are scaled is read off the clean ones.
    """
    unit = (x / 255).astype(np.float32)
    first, y = unit[:CORRUPTED_ROWS], np.asarray(y, dtype=np.int64)
    raw = features(_flat(first))
    spread = raw.std(0) / clean[: len(raw)].std(0)
    mean = raw.mean(0) - spread * clean[: len(raw)].mean(0)
    out = {"": (clean, y)}
    for damage in sorted(set(made.corruptions.values()) - {""}):
        name, severity = damage.split()
        worse = corruptions.corrupt(first, name, int(severity), np.random.default_rng(0))
        out[damage] = (((features(_flat(worse)) - mean) / spread).astype(clean.dtype), y[: len(first)])
    return out


def _flat(x: np.ndarray) -> np.ndarray:
    """One channel after the other, as `shift` makes rows of images."""
    return np.moveaxis(x, -1, 1).reshape(len(x), -1).astype(np.float32)
