"""scikit-learn's own mixtures on a GPU: the search over K takes a core many minutes on images. A reference; nothing is sent.

It is used where PyTorch sees a GPU and SCIPY_ARRAY_API=1 is set, without which scikit-learn takes no tensors.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from sklearn.utils import check_random_state

from unpooled.baselines import PooledClustering


def there_is_one() -> bool:
    if os.environ.get("SCIPY_ARRAY_API") != "1":
        return False
    import torch

    return torch.cuda.is_available()


class OnDevice(PooledClustering):
    """PooledClustering whose Gaussian mixtures are fitted on `device`, from the same k-means as on the processor."""

    device = "cuda"

    def _labels(self, x: np.ndarray) -> np.ndarray:
        import torch

        self._starts: dict[int, np.ndarray] = {}
        with config_context(array_api_dispatch=True):
            return super()._labels(torch.asarray(x, device=self.device)).cpu().numpy()

    def _mixture(self, x: Any, k: int, shape: str) -> GaussianMixture:
        import torch

        how = {"covariance_type": shape, "reg_covar": 1e-4, "random_state": self.random_state}
        member = torch.asarray(np.eye(k)[self._start(x, k)], device=self.device)
        start = GaussianMixture(k, **how)
        start._initialize(x, member)  # what scikit-learn makes of k-means labels
        begin = {"weights_init": start.weights_, "means_init": start.means_, "precisions_init": _precisions(start)}
        return GaussianMixture(k, init_params="random", **how, **begin).fit(x)

    def _start(self, x: Any, k: int) -> np.ndarray:
        """(n,) labels of k-means, as GaussianMixture would begin with; the same for every shape."""
        if k not in self._starts:
            rows = x.cpu().numpy()
            self._starts[k] = KMeans(k, n_init=1, random_state=check_random_state(self.random_state)).fit(rows).labels_
        return self._starts[k]


def _precisions(model: GaussianMixture) -> Any:
    root = model.precisions_cholesky_
    return root @ root.mT if model.covariance_type == "full" else root**2
