"""Label shares of a client in place of everybody's: the correction of class probabilities that needs no training. Nothing is sent.

A model of all clients has P(y | x) for labels as frequent as they are in all clients together. Where a client differs from the others in
how often it sees each label, but not in what a label looks like, its own P(y | x) is that times own share / share of all, normalised
(Saerens, Latinne and Decaestecker, 2002).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unpooled.arrays import Array, to_numpy
from unpooled.federation import Federation
from unpooled.learners.labels import label_counts
from unpooled.learners.rows import Rows

KEY = "kept_shift"  # of a client's state
PSEUDO_ROWS = 0.5  # rows per class that follow the shares of all, added to a client's counts


def label_shares(fed: Federation, labels: list) -> np.ndarray:  # (c,)
    """The shares of the labels over all clients: one SUM of counts."""
    counts = to_numpy(fed.sum(label_counts.using(labels=labels), None).counts) + PSEUDO_ROWS
    return np.asarray(counts / counts.sum())


def log_ratio(rows: Rows, shares: Array) -> np.ndarray:  # (..., c)
    """log(share at the client / share of all) of each label; counts are of all rows of weight above 0."""
    every = to_numpy(shares)
    y, w = to_numpy(rows.y), to_numpy(rows.w)
    counts = np.stack([(w * (y == code)).sum(-1) for code in range(len(every))], -1)
    pseudo = PSEUDO_ROWS * len(every)
    own = (counts + pseudo * every) / (counts.sum(-1, keepdims=True) + pseudo)
    return np.asarray(np.log(own / every))


def shifted(log_bases: np.ndarray, state: Mapping[str, Any]) -> np.ndarray:  # (b, n, c), or none
    """Scores of the bases with the client's label shares, if its state has the ratio."""
    return log_bases + to_numpy(state[KEY]) if KEY in state else log_bases[:0]
