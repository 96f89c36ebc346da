"""MNIST as features of a frozen encoder, split by label over clients, and FedGMM as it is fitted to them."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _methods import PAPER_GMM, device
from sklearn.metrics import roc_auc_score

import unpooled as up
from unpooled.data import partition
from unpooled.datasets import encoder


def features(x: np.ndarray, **how: Any) -> np.ndarray:
    """(n, 232) features of images, kept in a temporary file, since they are the slow part."""
    what = hashlib.sha256(np.ascontiguousarray(x).tobytes() + repr(sorted(how.items())).encode()).hexdigest()[:16]
    file = Path(tempfile.gettempdir()) / f"unpooled-encoded-{what}.npy"
    if not file.exists():
        np.save(file, encoder.encode(x, device() or "cpu", **how))
    return np.load(file)


def scaled(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Columns to mean 0 and spread 1 over the training rows: two sums that any federation can make."""
    mean, spread = train.mean(0), train.std(0)
    return [(x - mean) / spread for x in (train, *others)]


def by_label(x: np.ndarray, y: np.ndarray, clients: int, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows of each class shared out by Dirichlet(0.4)."""
    owner = partition.dirichlet(y, clients, 0.4, min_rows=10, random_state=seed)
    return {f"client-{c:02d}": (x[owner == c], y[owner == c]) for c in range(clients)}


def settings(small: bool, seed: int) -> dict[str, Any]:
    rounds = {"max_iter": 20 if small else 100}
    return {"batch_size": 128, "momentum": 0.9, "random_state": seed, "device": device()} | rounds


def fedgmm(small: bool, gaussians: int | None = None, **options: Any) -> up.FedGMM:
    """As many Gaussians as asked for, or one for about 200 rows; three learners, or one for a single Gaussian."""
    own = {"embedding": 48, "starts": ("tied",), "warmup": 8, "reg_covar": 0.02}
    gaussians = gaussians or (10 if small else 120)
    return up.FedGMM(gaussians, min(gaussians, 3), **PAPER_GMM | own | options)


def apart(high: np.ndarray, low: np.ndarray) -> float:
    """AUROC of scores that should be high and scores that should be low."""
    return float(roc_auc_score(np.r_[np.ones(len(high)), np.zeros(len(low))], np.r_[high, low]))
