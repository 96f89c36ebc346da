"""A smooth curve through points by local linear regression with tricube weights (LOESS); sends nothing."""

from __future__ import annotations

import numpy as np


def smooth(t: np.ndarray, y: np.ndarray, share: float = 0.3) -> np.ndarray:  # (n,), (n,) -> (n,)
    """At each t, the weighted regression line through the nearest fraction `share` of the points."""
    distances = np.abs(t[:, None] - t[None])
    n_nearest = max(2, int(np.ceil(share * len(t))))
    bandwidth = np.partition(distances, n_nearest - 1, axis=1)[:, n_nearest - 1]
    relative = distances / np.maximum(bandwidth, 1e-300)[:, None]
    w = np.clip(1 - relative**3, 0, 1) ** 3
    total = w.sum(axis=1)
    t_mean = w @ t / total
    y_mean = w @ y / total
    centred = t[None] - t_mean[:, None]
    slope = (w * centred) @ y / np.maximum((w * centred**2).sum(axis=1), 1e-300)
    return y_mean + slope * (t - t_mean)
