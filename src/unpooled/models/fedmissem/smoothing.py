"""A smooth curve through points: local straight lines with tricube weights, as LOESS draws them."""

from __future__ import annotations

import numpy as np


def smooth(t: np.ndarray, y: np.ndarray, share: float = 0.3) -> np.ndarray:  # (n,), (n,) -> (n,)
    """At each t, the line through the nearest share of the points, the nearer the heavier."""
    apart = np.abs(t[:, None] - t[None])
    reach = np.partition(apart, max(2, int(np.ceil(share * len(t)))) - 1, axis=1)[
        :, max(2, int(np.ceil(share * len(t)))) - 1
    ]
    w = np.clip(1 - (apart / np.maximum(reach, 1e-300)[:, None]) ** 3, 0, 1) ** 3
    n = w.sum(axis=1)
    t_mean, y_mean = w @ t / n, w @ y / n
    away = t[None] - t_mean[:, None]
    slope = (w * away) @ y / np.maximum((w * away**2).sum(axis=1), 1e-300)
    return y_mean + slope * (t - t_mean)
