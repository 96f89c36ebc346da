"""The server's half of kernel distillation: it sends nothing; it needs the SUM of the clients' Gram matrices."""

from __future__ import annotations

import numpy as np
import torch

from unpooled.arrays import Array
from unpooled.maths.descent import Adam, adam
from unpooled.maths.feature_maps import Kernel, Leaves, Spec, features
from unpooled.maths.torch_training import Tensor, arrays, minus_evidence, moved, own, tensors


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
    """Adam on - log p(y) / n + weight * mean squared difference of Gram matrices, over rows x (r, d), y (r, o)."""
    x, y = (torch.as_tensor(np.asarray(a)) for a in rows)
    states = {k: adam(v) for k, v in tensors(leaves).items()}
    target, fixed = torch.as_tensor(gram), tensors(omega)
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
    """Adam's states after so many steps, for rows (x, y, target): x (..., r, d), and the Gram matrix to reach (..., r, r)."""
    x, y, target = rows
    w, states = torch.ones(x.shape[:-1], dtype=x.dtype, device=x.device), own(states)
    for _ in range(steps):
        at = {k: s.at.requires_grad_() for k, s in states.items()}
        z = features(spec, Kernel(at, fixed), x)
        loss = minus_evidence(z, y, w, at) + weight * ((z @ z.mT - target) ** 2).mean((-1, -2))
        states = moved(states, torch.autograd.grad(loss.sum(), list(at.values())), rate)
    return states
