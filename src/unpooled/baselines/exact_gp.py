"""Exact Gaussian processes in torch, Gaussian kernel with a length scale per column: n^3 per step. Sends nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from unpooled.maths.fitc import rbf
from unpooled.tree import message

Tensor = torch.Tensor
FARTHEST = 11.5  # bound of log scales and log variances: a factor of 10^5 either way


@message("exact_gp.Shape")
class Shape(NamedTuple):
    """The hyper-parameters."""

    log_scale: Tensor  # (d,)
    log_signal: Tensor  # () log variance of the function
    log_noise: Tensor  # () log variance of the noise


@message("exact_gp.Process")
class Process(NamedTuple):
    """A fitted Gaussian process: what predictions need."""

    shape: Shape
    rows: Tensor  # (n, d) scaled
    factor: Tensor  # (n, n) Cholesky factor of the kernel with noise
    pull: Tensor  # (n, 1) (kernel + noise)^-1 y
    evidence: float  # log p(y)


def fit(shape: Shape, x: Tensor, y: Tensor) -> Process:
    """The Gaussian process of rows x (n, d) and targets y (n, 1)."""
    rows = x * torch.exp(-shape.log_scale)
    return _process(shape, rows, rbf(rows, rows, shape.log_signal), y)


def _process(shape: Shape, rows: Tensor, kernel: Tensor, y: Tensor) -> Process:
    """The process of a kernel matrix (n, n) without noise; the evidence is -inf if it is not positive definite."""
    noise = torch.exp(shape.log_noise) * torch.eye(len(y), dtype=y.dtype, device=y.device)
    factor, failed = torch.linalg.cholesky_ex(kernel + noise)
    pull = torch.cholesky_solve(y, factor)
    misfit = 0.5 * (y * pull).sum()
    half_log_det = factor.diagonal().log().sum()
    evidence = -misfit - half_log_det - 0.5 * len(y) * math.log(2 * math.pi)
    return Process(shape, rows, factor, pull, -math.inf if failed else float(evidence))


def predict(known: Process, new: Tensor) -> tuple[Tensor, Tensor]:
    """(mean, variance with noise) (q,) at new rows (q, d)."""
    shape = known.shape
    scaled = new * torch.exp(-shape.log_scale)
    across = rbf(known.rows, scaled, shape.log_signal)  # (n, q)
    mean = (across.mT @ known.pull)[:, 0]
    explained = torch.linalg.solve_triangular(known.factor, across, upper=False)
    variance = torch.exp(shape.log_signal) - (explained * explained).sum(0)
    return mean, variance.clamp(min=0.0) + torch.exp(shape.log_noise)


def slope(shape: Shape, x: Tensor, y: Tensor) -> tuple[float, np.ndarray]:
    """(log p(y), its gradient by log_scale, log_signal, log_noise)."""
    scale = shape.log_scale.clone().requires_grad_()
    signal = shape.log_signal.clone().requires_grad_()
    rows = x * torch.exp(-scale)
    kernel = rbf(rows, rows, signal)
    with torch.no_grad():
        known = _process(shape, rows, kernel, y)
        toward = 0.5 * (known.pull @ known.pull.mT - torch.cholesky_inverse(known.factor))  # d log p(y) by the kernel
    parts = torch.autograd.grad(kernel, (scale, signal), toward)
    noise = toward.diagonal().sum() * torch.exp(shape.log_noise)
    return known.evidence, torch.cat([p.reshape(-1) for p in (*parts, noise)]).cpu().numpy()


def learn(shape: Shape, x: Tensor, y: Tensor, steps: int) -> Shape:
    """The hyper-parameters that maximise the evidence, by at most `steps` steps of L-BFGS."""
    d = len(shape.log_scale)

    def at(flat: np.ndarray) -> Shape:
        """The hyper-parameters of a flat vector (d + 2,)."""
        t = torch.as_tensor(flat, dtype=x.dtype, device=x.device)
        return Shape(t[:d], t[d], t[d + 1])

    def cost(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """(- log p(y) / n, its gradient); a large constant where the gradient is not finite."""
        value, gradient = slope(at(flat), x, y)
        if not np.isfinite(gradient).all():
            return 1e10, np.zeros_like(flat)
        return -value / len(y), -gradient / len(y)

    start = torch.cat([p.reshape(-1) for p in shape]).cpu().numpy()
    bounds = [(-FARTHEST, FARTHEST)] * len(start)
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return at(found.x)
