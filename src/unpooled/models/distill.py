"""The server's half of kernel distillation: it sends nothing; it needs the SUM of the clients' Gram matrices."""

from __future__ import annotations

import numpy as np
import torch

from unpooled.arrays import Array
from unpooled.maths.descent import adam, adam_step
from unpooled.maths.feature_maps import Kernel, Leaves, Spec, features
from unpooled.maths.torch_training import arrays, minus_evidence, tensors


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
    target, w, fixed = torch.as_tensor(gram), torch.ones(len(x), dtype=torch.float64), tensors(omega)
    states = {k: adam(v) for k, v in tensors(leaves).items()}
    for _ in range(steps):
        at = {k: s.at.detach().requires_grad_() for k, s in states.items()}
        z = features(spec, Kernel(at, fixed), x)
        loss = minus_evidence(z, y, w, at) + weight * ((z @ z.mT - target) ** 2).mean()
        gradient = torch.autograd.grad(loss, list(at.values()))
        states = {k: adam_step(s, g, rate) for (k, s), g in zip(states.items(), gradient)}
    return arrays({k: s.at for k, s in states.items()})
