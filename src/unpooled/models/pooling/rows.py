"""A client's rows as fits need them: complete, standardised, with a weight for each fold that is left out. Nothing is sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unpooled.arrays import Array, Float, to_numpy
from unpooled.client import Client
from unpooled.errors import BadData
from unpooled.maths.folds import FOLDS, fold_of
from unpooled.models.pooling import small_glm
from unpooled.tree import message

FAR = 3.0  # standard deviations at which features are cut off, so that a few wild rows do not decide
MOST_PRODUCTS = 5  # columns up to which products of pairs are compared as well


@message("pooling.Frame")
class Frame(NamedTuple):
    """Means and standard deviations over all clients."""

    mean: Float[Array, "p"]
    sd: Float[Array, "p"]
    y_mean: Float[Array, ""]
    y_sd: Float[Array, ""]


class Prepared(NamedTuple):
    """Standardised rows, and their weights without each fold."""

    rows: small_glm.Rows
    versions: np.ndarray  # (n, v) weights of rows: without each fold, then of all rows
    fold: np.ndarray  # (n,) the fold of each row


def complete(client: Client) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(x, y, w, which rows are complete and have a weight) of one client."""
    if client.y is None:
        raise BadData(f"client {client.name!r} has no targets: give y")
    x, y, w = (to_numpy(a).astype(np.float64, copy=False) for a in (client.x, client.y, client.w))
    return x, y, w, ~(np.isnan(x.sum(1)) | np.isnan(y)) & (w > 0)


def folds(client: Client, cv: int) -> np.ndarray:  # (n,) int
    """The fold of each of the client's rows."""
    if cv not in FOLDS:
        raise BadData(f"cv={cv!r} must be one of {', '.join(map(str, FOLDS))}")
    return fold_of(to_numpy(client.x), to_numpy(client.y), cv)


def prepared(frame: Frame, client: Client, family: str, cv: int) -> Prepared:
    """The client's rows, made once for each frame."""
    key = b"".join(np.asarray(a).tobytes() for a in frame) + f"{family} {cv}".encode()
    known = client.memo.get("pooling.rows")
    if known is None or known[0] != key:
        known = client.memo["pooling.rows"] = (key, _prepare(frame, client, family, cv))
    return known[1]


def _prepare(frame: Frame, client: Client, family: str, cv: int) -> Prepared:
    """A client's complete rows, standardised, with the fold of each."""
    x, y, w, kept = complete(client)
    z = np.column_stack([np.ones(kept.sum()), (x[kept] - frame.mean) / frame.sd])
    target = y[kept]
    if family == "normal":
        target = (target - frame.y_mean) / frame.y_sd
    rows = small_glm.Rows(z, small_glm.products(z), target, w[kept])
    fold = np.zeros(len(z), np.int64)
    if cv:
        fold = folds(client, cv)[kept]
    without = [rows.w * (fold != f) for f in range(cv)]
    return Prepared(rows, np.stack([*without, rows.w], 1), fold)


def x_features(frame: Frame, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """(features (n, f), w): columns and their squares, cut off far from the mean; of few columns their products too."""
    x, _, w, kept = complete(client)
    z = np.clip((x[kept] - frame.mean) / frame.sd, -FAR, FAR)
    if z.shape[1] > MOST_PRODUCTS:
        return np.concatenate([z, z**2], 1), w[kept]
    return np.concatenate([z, small_glm.products(z)], 1), w[kept]


def y_features(frame: Frame, client: Client, family: str) -> tuple[np.ndarray, np.ndarray]:
    """(features (n, f), w) of the targets: they themselves, and their squares unless they are 0 or 1."""
    _, y, w, kept = complete(client)
    z = np.clip((y[kept, None] - frame.y_mean) / frame.y_sd, -FAR, FAR)
    return z if family == "binomial" else np.concatenate([z, z**2], 1), w[kept]
