"""Training of feature maps in torch, imported only when a kernel is learned. Sends nothing.

`pullback` turns a derivative by features into one by theta. `descend` trains copies of a map for many stacked clients
at once, each on its own rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from unpooled.arrays import Array, to_numpy
from unpooled.maths import fitc
from unpooled.maths.descent import BETA_1, BETA_2, Adam, adam
from unpooled.maths.feature_maps import MAPS, Kernel, Leaves, Map, Spec, features

Tensor = torch.Tensor
Loss = Callable[[Tensor, Tensor, Tensor, dict[str, Tensor]], Tensor]  # (z, y, w, leaves) -> one number per client


def tensors(leaves: Leaves, device: str = "cpu", learn: bool = False) -> dict[str, Tensor]:
    """Leaves as double tensors; with `learn`, as copies that need a gradient."""
    made = {k: torch.as_tensor(np.asarray(v), dtype=torch.float64, device=device) for k, v in leaves.items()}
    return {k: v.clone().requires_grad_() for k, v in made.items()} if learn else made


def arrays(leaves: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Leaves as NumPy arrays."""
    return {k: to_numpy(v) for k, v in leaves.items()}


def pullback(spec: Spec, kernel: Kernel, x: Array, slope: Callable[[np.ndarray], np.ndarray]) -> Leaves:
    """The gradient by theta of a function of the features of x (n, d), given its derivative by the features."""
    device = spec.get("device", "cpu")
    theta = tensors(kernel.theta, device, learn=True)
    z = features(spec, Kernel(theta, tensors(kernel.omega, device)), torch.as_tensor(x, device=device))
    by_features = torch.as_tensor(slope(to_numpy(z)), device=device)
    gradient = torch.autograd.grad(z, list(theta.values()), by_features)
    return {k: to_numpy(g) for k, g in zip(theta, gradient)}


def minus_evidence(z: Tensor, y: Tensor, w: Tensor, leaves: dict[str, Tensor]) -> Tensor:
    """- log p(y) / n of each client (...,) under Bayesian linear regression on z (..., n, k), y (..., n, o).

    Each client has its own log_noise and log_prior, the logarithms of variances.
    """
    noise = leaves["log_noise"]  # (...,)
    prior = leaves["log_prior"]  # (...,)
    n = w.sum(-1)
    o = y.shape[-1]
    root = w.sqrt()[..., None]
    rz = z * root
    ry = y * root
    ratio = torch.exp(prior - noise)[..., None, None]
    few = z.shape[-2] < z.shape[-1]  # fewer rows than features: use the smaller of the two equivalent matrices
    inner = ratio * (rz @ rz.mT if few else rz.mT @ rz)
    factor, failed = torch.linalg.cholesky_ex(inner + torch.eye(inner.shape[-1], dtype=z.dtype, device=z.device))
    b = torch.linalg.solve_triangular(factor, ry if few else rz.mT @ ry, upper=False)
    squares = (b * b).sum((-1, -2)) if few else (ry * ry).sum((-1, -2)) - (ratio * b * b).sum((-1, -2))
    log_det = 2 * torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1)
    total = 0.5 * (o * (n * math.log(2 * math.pi) + n * noise + log_det) + squares * torch.exp(-noise))
    return torch.where(failed == 0, total / n.clamp(min=1.0), torch.nan)


def squared_error(z: Tensor, y: Tensor, w: Tensor, leaves: dict[str, Tensor]) -> Tensor:
    """Mean squared error (...,) of each client with a plain linear head (k, o) and offset (o,)."""
    residual = y - z @ leaves["head"] - leaves["offset"][..., None, :]
    return (w[..., None] * residual * residual).sum((-1, -2)) / w.sum(-1).clamp(min=1.0)


def minus_fitc(z: Tensor, y: Tensor, w: Tensor, leaves: dict[str, Tensor]) -> Tensor:
    """- log p(y) / n of each client (...,) under a sparse Gaussian process over its features z, one output."""
    known = fitc.fit(z, y, w, leaves["inducing"], leaves["log_signal"], leaves["log_noise"])
    return -known.evidence / w.sum(-1).clamp(min=1.0)


def sparse_fit(spec: Spec, leaves: Leaves, rows: tuple[Array, Array, Array]) -> fitc.Fit:
    """The sparse Gaussian process of rows (x, y, w): x (..., n, d)."""
    x, y, w = (torch.as_tensor(np.asarray(a)) for a in rows)
    layers, shape = _sparse(leaves)
    return fitc.fit(features(spec, Kernel(layers, {}), x), y, w, *shape)


def sparse_predict(spec: Spec, leaves: Leaves, known: fitc.Fit, new: Array) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) (..., q) at rows new (..., q, d) by a sparse Gaussian process with these leaves."""
    layers, shape = _sparse(leaves)
    mean, variance = fitc.predict(known, features(spec, Kernel(layers, {}), torch.as_tensor(np.asarray(new))), *shape)
    return to_numpy(mean), to_numpy(variance)


def _sparse(leaves: Leaves) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """The leaves of the feature map, and those of the process on top: inducing points, signal and noise."""
    layers = tensors(leaves)
    return layers, (layers.pop("inducing"), layers.pop("log_signal"), layers.pop("log_noise"))


LOSSES: dict[str, Loss] = {"evidence": minus_evidence, "squared": squared_error, "fitc": minus_fitc}


def descend(
    spec: Spec,
    leaves: Leaves,
    omega: Leaves,
    rows: tuple[Array, Array, Array],
    *,
    loss: str,
    epochs: int,
    rate: float,
    proximal: float = 0.0,
) -> Leaves:
    """The leaves (..., *leaf) after `epochs` full-batch Adam steps for every client stacked in rows (x, y, w).

    All clients start from the same leaves.
    """
    device = spec.get("device", "cpu")
    x, y, w = (torch.as_tensor(np.asarray(a), device=device) for a in rows)
    lead = w.shape[:-1]
    states = {k: adam(v.expand((*lead, *v.shape))) for k, v in tensors(leaves, device).items()}
    fixed = tensors(omega, device)
    states = steps(spec, states, fixed, (x, y, w), loss=loss, epochs=epochs, rate=rate, proximal=proximal)
    return arrays({k: s.at for k, s in states.items()})


def steps(
    spec: Spec,
    states: dict[str, Adam],
    fixed: dict[str, Tensor],
    rows: tuple[Tensor, Tensor, Tensor],
    *,
    loss: str,
    epochs: int,
    rate: float | Tensor,
    proximal: float | Tensor = 0.0,
) -> dict[str, Adam]:
    """Adam's states after `epochs` more steps, each stack of leaves (..., *leaf) on its own rows.

    `proximal` is the weight of a proximal term; it and `rate` may be one number per stack: (...,). NaN gradients are
    ignored.
    """
    x, y, w = rows
    start = {k: s.at for k, s in states.items()}

    def value(at: dict[str, Tensor]) -> Tensor:
        """The loss of each stack."""
        return LOSSES[loss](features(spec, Kernel(at, fixed), x), y, w, at)

    def with_pull(at: dict[str, Tensor], name: str, gradient: Tensor) -> Tensor:
        """The gradient of a leaf with that of the proximal term."""
        return gradient + over(proximal, gradient) * (at[name].detach() - start[name])

    if isinstance(proximal, Tensor) or proximal > 0:
        return adam_steps(states, value, epochs, rate, with_pull)
    return adam_steps(states, value, epochs, rate)


def adam_steps(
    states: dict[str, Adam],
    loss: Callable[[dict[str, Tensor]], Tensor],
    count: int,
    rate: float | Tensor,
    adjust: Callable[[dict[str, Tensor], str, Tensor], Tensor] | None = None,
) -> dict[str, Adam]:
    """Adam's states after `count` steps down `loss`, which gives one number per stack.

    `adjust(leaves, name, gradient)` changes the gradient of a leaf.
    """
    states = writable_copies(states)
    for _ in range(count):
        at = {k: s.at.requires_grad_() for k, s in states.items()}
        gradient = torch.autograd.grad(loss(at).sum(), list(at.values()))
        if adjust is not None:
            gradient = tuple(adjust(at, k, g) for k, g in zip(at, gradient))
        states = moved(states, gradient, rate)
    return states


def over(number: float | Tensor, leaf: Tensor) -> float | Tensor:
    """One number per stack, reshaped so that it multiplies its leaf; a float stays as it is."""
    return number.reshape(number.shape + (1,) * (leaf.ndim - number.ndim)) if isinstance(number, Tensor) else number


def writable_copies(states: dict[str, Adam]) -> dict[str, Adam]:
    """Copies of the states that `moved` may write to."""

    def copied(a: Tensor) -> Tensor:
        """A contiguous copy without its gradient."""
        return a.detach().clone(memory_format=torch.contiguous_format)

    return {k: Adam(copied(s.at), copied(s.first), copied(s.second), s.taken) for k, s in states.items()}


@torch.no_grad()
def moved(states: dict[str, Adam], gradient: Sequence[Tensor], rate: float | Tensor) -> dict[str, Adam]:
    """One step of Adam (`descent.adam_step`), in place, since with many clients memory traffic dominates.

    NaN and infinite gradients are ignored; `rate` may be one number per stack: (...,).
    """
    found = {}
    for (k, (at, first, second, taken)), g in zip(states.items(), gradient):
        g = torch.nan_to_num(g, nan=0.0, posinf=0.0, neginf=0.0)
        at = at.detach()
        first.lerp_(g, 1 - BETA_1)
        second.mul_(BETA_2).addcmul_(g, g, value=1 - BETA_2)
        step = torch.div(second, 1 - BETA_2 ** (taken + 1), out=g).sqrt_().add_(1e-8)
        step = torch.div(first, step, out=step)
        least = 1 - BETA_1 ** (taken + 1)
        if isinstance(rate, Tensor):
            at.addcmul_(step, over(rate, at), value=-1 / least)
        else:
            at.add_(step, alpha=-rate / least)
        found[k] = Adam(at, first, second, taken + 1)
    return found


# ---- a torch module of the user as a feature map ----


def register(name: str, module: torch.nn.Module) -> None:
    """Register a torch module (n, d) -> (n, k) as a feature map.

    Every client process must register it under the same name.
    """

    def start(spec: Spec, d: int, rng: np.random.Generator) -> Kernel:
        """The module's own parameters and buffers."""
        theta = {k: to_numpy(v).astype(np.float64) for k, v in module.named_parameters()}
        return Kernel(theta, {k: to_numpy(v).astype(np.float64) for k, v in module.named_buffers()})

    def apply(spec: Spec, kernel: Kernel, x: Array) -> Array:
        """The module's outputs at rows x (..., n, d), with these parameters."""
        # functional_call swaps parameters in: threads must not share the module
        module_copy = copy.deepcopy(module).double()
        theta = _as_tensors(kernel.theta)
        omega = _as_tensors(kernel.omega)
        rows = torch.as_tensor(x)

        def one(theta: dict[str, Tensor], x: Tensor) -> Tensor:
            """The outputs with one theta."""
            return torch.func.functional_call(module_copy, {**omega, **theta}, (x,))

        if any(theta[k].ndim > p.ndim for k, p in module_copy.named_parameters()):  # one theta per client
            z = torch.func.vmap(one)(theta, rows)
        else:
            z = one(theta, rows.flatten(0, -2)).unflatten(0, rows.shape[:-1])
        return z if isinstance(x, torch.Tensor) else to_numpy(z)

    MAPS[name] = Map(start, apply)


def _as_tensors(leaves: Leaves) -> dict[str, Tensor]:
    """Leaves as tensors; those that are tensors stay as they are."""
    return {k: v if isinstance(v, torch.Tensor) else torch.as_tensor(np.asarray(v)) for k, v in leaves.items()}
