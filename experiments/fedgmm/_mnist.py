"""MNIST as features of a frozen encoder, split by label over clients; features are kept in a file, since they are the slow part."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unpooled.data import encoder, partition


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def features(x: np.ndarray, say: Callable[[str], None]) -> np.ndarray:
    """(n, 1280) features of images, kept in a temporary file; at 224 pixels on a GPU, at 64 on a CPU."""
    side = 224 if device() == "cuda" else 64
    name = hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()[:16]
    file = Path(tempfile.gettempdir()) / f"unpooled-features-{side}-{name}.npy"
    if file.exists():
        return np.load(file)
    say(f"encoding {len(x)} images at {side} pixels on {device()}")
    found = encoder.encode(x, device(), side=side)
    np.save(file, found)
    return found


def by_label(x: np.ndarray, y: np.ndarray, clients: int, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows of each class shared out by Dirichlet(0.4)."""
    owner = partition.dirichlet(y, clients, 0.4, min_rows=10, random_state=seed)
    return {f"client-{c:02d}": (x[owner == c], y[owner == c]) for c in range(clients)}
