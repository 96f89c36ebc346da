"""IFCA as the code published with the paper has it: a model that no client chose in a round is set to 0.

There the average over no clients is a network of zeros. It has equal probabilities for all labels, which is less loss than that of a
model which is wrong for a client's concept, so that clients choose it; and but for its last intercepts it cannot learn.
"""

from __future__ import annotations

import numpy as np

from unpooled.arrays import to_numpy
from unpooled.baselines.ifca import IFCA, State
from unpooled.estimator import Info
from unpooled.federation import Federation


class PublishedIFCA(IFCA):
    """IFCA whose unused models become zeros."""

    def step(self, fed: Federation, state: State) -> tuple[State, Info]:
        """One round of IFCA; models without clients are lost."""
        new, info = super().step(fed, state)
        used = to_numpy(new.weight) > 0
        return new._replace(theta=new.theta * _like(used[:, None], new.theta)), info | {"used": int(used.sum())}


def _like(mask: np.ndarray, theta):
    """The mask as numbers of the kind of theta, NumPy or torch."""
    return theta.new_tensor(mask) if hasattr(theta, "new_tensor") else mask.astype(theta.dtype)
