"""Kernel distillation at the server, towards the mean Gram matrix of the clients. Sends nothing."""

from __future__ import annotations

import numpy as np
import torch

from unpooled.arrays import Array
from unpooled.maths.descent import Adam, adam
from unpooled.maths.feature_maps import Kernel, Leaves, Spec, features
from unpooled.maths.torch_training import Tensor, adam_steps, arrays, minus_evidence, tensors


def distil(
    spec: Spec,
    leaves: Leaves,
    omega: Leaves,
    rows: tuple[Array, Array],
    gram: Array,
    *,
    weight: float,
    steps: int,
    rate: float,
) -> Leaves:
    """Minimise - log p(y) / n + weight * mean squared difference of Gram matrices by Adam, over rows x (r, d), y (r, o)."""
    x, y = (torch.as_tensor(np.asarray(a)) for a in rows)
    states = {k: adam(v) for k, v in tensors(leaves).items()}
    target = torch.as_tensor(gram)
    fixed = tensors(omega)
    states = distil_steps(spec, states, fixed, (x, y, target), weight=weight, steps=steps, rate=rate)
    return arrays({k: s.at for k, s in states.items()})


def distil_steps(
    spec: Spec,
    states: dict[str, Adam],
    fixed: dict[str, Tensor],
    rows: tuple[Tensor, Tensor, Tensor],
    *,
    weight: float,
    steps: int,
    rate: float | Tensor,
) -> dict[str, Adam]:
    """Adam's states after `steps` more steps, for rows (x, y, target): x (..., r, d), target Gram matrix (..., r, r)."""
    x, y, target = rows
    w = torch.ones(x.shape[:-1], dtype=x.dtype, device=x.device)

    def loss(at: dict[str, Tensor]) -> Tensor:
        """Minus the evidence, and the distance from the clients' mean Gram matrix."""
        z = features(spec, Kernel(at, fixed), x)
        return minus_evidence(z, y, w, at) + weight * ((z @ z.mT - target) ** 2).mean((-1, -2))

    return adam_steps(states, loss, steps, rate)
